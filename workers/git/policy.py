"""Checks a patch's format, scope and constraints: before it is queued (PATCH-1), and again when it is staged."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

from pathspec import GitIgnoreSpec
from pydantic import BaseModel, ConfigDict, Field, field_validator

from interlock.workers.git import forbidden_paths, patch
from interlock.workers.git.diff_summary import LINK, PLAIN, SUBMODULE, FileChange, PatchReason

ACTING_ATTRIBUTE = re.compile(r"(?:^|\s)(?:filter|diff|merge|working-tree-encoding|ident)\b")
PROTECTED = (
    "is protected: it judges changes, or runs where people work. `protected_changes: allow` under the plan's "
    "`repository` lets such a change land"
)
SIGN = re.compile(r"([\\*?\[\]!# ])")  # characters with a meaning in a line of .gitignore
BACKSLASH = r"\\\1"
Globs = tuple[Annotated[str, Field(min_length=1)], ...]


class PhasePaths(BaseModel):
    """What a phase allows of what its policy allows (PHASE-3). Globs as in `PatchPolicy`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    allowed_paths: Globs = ("**",)
    forbidden_paths: Globs = ()


class PatchPolicy(BaseModel):
    """What a patch may do.

    Globs are read like lines of `.gitignore`, from the tree's root: `src/` is any directory of that name with all
    its content, at any depth, `src/**` only the one at the root, `*.py` any such file at any depth, `/setup.py` only
    the one at the root. Case counts. `.git` and `.interlock` are always forbidden, at every depth, in every spelling.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    allowed_paths: Globs = ("**",)
    forbidden_paths: Globs = ()
    max_bytes: int = Field(default=1_000_000, ge=1)
    max_files: int = Field(default=200, ge=1)
    max_changed_lines: int = Field(default=10_000, ge=1)
    allow_binary: bool = False
    protected_paths: Globs = ()
    """Files that gates judge with, such as tests: while a gate runs, they are those of the base branch."""
    run_by_gates: tuple[str, ...] = ()
    """Paths of the files that gates run; they are protected too."""
    protected_changes: Literal["refuse", "allow"] = "refuse"
    """Whether a patch may change protected paths."""
    phase: PhasePaths | None = None
    """The phase's paths, which narrow the others."""

    @property
    def protected(self) -> GitIgnoreSpec:
        """All protected paths."""
        run = [f"/{SIGN.sub(BACKSLASH, path)}" for path in self.run_by_gates]
        return GitIgnoreSpec.from_lines([*self.protected_paths, *run])

    def for_patches(self, patches: int) -> "PatchPolicy":
        """The policy for a branch that holds several patches: as many files and lines as the patches, and one more
        change (commits made by commands), may have together."""
        limits = ("max_files", "max_changed_lines")
        return self.model_copy(update={name: getattr(self, name) * (patches + 1) for name in limits})

    @field_validator("allowed_paths", "forbidden_paths", "protected_paths")
    @classmethod
    def _plain(cls, globs: Globs) -> Globs:
        for glob in globs:
            if glob.startswith(("!", "#")) or not glob.strip():
                raise ValueError(f"{glob!r} is not a glob: it is blank, or begins with `!` or `#`")
            GitIgnoreSpec.from_lines([glob])
        return globs


class Checked(NamedTuple):
    """The three verdicts on a patch, and the reasons against it. A verdict that was not reached is false."""

    format: bool
    scope: bool
    constraints: bool
    reasons: tuple[PatchReason, ...] = ()
    changes: tuple[FileChange, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all three verdicts are positive."""
        return self.format and self.scope and self.constraints

    def __str__(self) -> str:
        return "; ".join(map(str, self.reasons)) or "passed"


def check(patch_text: str, policy: PatchPolicy | None = None, *, links: Collection[str] = ()) -> Checked:
    """Judge a patch by its text alone.

    Args:
        patch_text: the diff.
        policy: what it may do.
        links: the symbolic links of the tree it is meant for (`trial_index.links`), through which no path may go.
    """
    policy = policy or PatchPolicy()
    changes = patch.read(patch_text, max_bytes=policy.max_bytes)
    if isinstance(changes, PatchReason):
        return Checked(False, False, False, (changes,))
    return judge(changes, policy, links=links)


def judge(changes: Sequence[FileChange], policy: PatchPolicy, *, links: Collection[str] = ()) -> Checked:
    """Judge changes, read from a patch or from what git staged of it."""
    made = {each.new for each in changes if each.new_mode == LINK}
    form = tuple(_form(changes, policy))
    scope = tuple(_scope(changes, policy))
    constraints = (*_size(changes, policy), *(r for each in changes for r in _constraints(each, {*links, *made})))
    return Checked(not form, not scope, not constraints, form + scope + constraints, tuple(changes))


def _form(changes: Sequence[FileChange], policy: PatchPolicy) -> Iterator[PatchReason]:
    for each in changes:
        if each.binary and not policy.allow_binary:
            yield PatchReason(each.new, "binary", "is binary, which this policy does not allow")
        elif each.without_content:
            yield PatchReason(
                each.new, "binary", "is binary without its content; make the patch with `git diff --binary`"
            )


def _scope(changes: Sequence[FileChange], policy: PatchPolicy) -> Iterator[PatchReason]:
    allowed, forbidden = map(GitIgnoreSpec.from_lines, (policy.allowed_paths, policy.forbidden_paths))
    protected = policy.protected if policy.protected_changes == "refuse" else GitIgnoreSpec(())
    phase = policy.phase or PhasePaths(name="")
    its_allowed, its_forbidden = map(GitIgnoreSpec.from_lines, (phase.allowed_paths, phase.forbidden_paths))
    for path in _touched(changes):
        if forbidden_paths.own(path):
            yield PatchReason(path, "forbidden_paths", f"Attempted to modify {path}")
        elif forbidden_paths.outside(path) or not allowed.match_file(path):
            yield PatchReason(path, "allowed_paths", f"is outside of {', '.join(policy.allowed_paths)}")
        elif forbidden.match_file(path):
            yield PatchReason(path, "forbidden_paths", f"is under {', '.join(policy.forbidden_paths)}")
        elif protected.match_file(path):
            yield PatchReason(path, "protected", PROTECTED)
        elif not its_allowed.match_file(path):
            allows = ", ".join(phase.allowed_paths)
            yield PatchReason(path, "phase", f"may not be changed in phase {phase.name}, which allows {allows}")
        elif its_forbidden.match_file(path):
            yield PatchReason(path, "phase", f"is forbidden in phase {phase.name}")


def _touched(changes: Sequence[FileChange]) -> list[str]:
    return list(dict.fromkeys(path for each in changes for path in each.paths))


def _size(changes: Sequence[FileChange], policy: PatchPolicy) -> Iterator[PatchReason]:
    if (files := len(_touched(changes))) > policy.max_files:
        yield PatchReason("", "max_files", f"touches {files} files, more than the {policy.max_files} allowed")
    if (lines := sum(each.added + each.deleted for each in changes)) > policy.max_changed_lines:
        yield PatchReason(
            "", "max_changed_lines", f"changes {lines} lines, more than the {policy.max_changed_lines} allowed"
        )


def _constraints(change: FileChange, links: Collection[str]) -> Iterator[PatchReason]:
    for path in change.paths:
        if why := forbidden_paths.outside(path):
            yield PatchReason(path, "path", why)
        if name := forbidden_paths.own(path):
            yield PatchReason(path, "own_directory", f"goes into {name}")
        if link := forbidden_paths.above(path, links):
            yield PatchReason(path, "symlink", f"goes through the symbolic link {link}")
        yield from _special(change, path)
    yield from _mode(change)


def _special(change: FileChange, path: str) -> Iterator[PatchReason]:
    name = forbidden_paths.special(path)
    if name == ".gitmodules":
        yield PatchReason(path, "submodule", "changes the list of submodules")
    if name == ".gitattributes":
        if change.old != change.new or change.binary or change.new_mode == LINK:
            yield PatchReason(path, "attributes", "becomes .gitattributes without showing its lines")
        elif line := next((line for line in change.written if ACTING_ATTRIBUTE.search(line)), None):
            yield PatchReason(path, "attributes", f"makes git run something or change content: {line.strip()[:100]!r}")


def _mode(change: FileChange) -> Iterator[PatchReason]:
    modes = {mode for mode in (change.old_mode, change.new_mode) if mode is not None}
    if SUBMODULE in modes:
        yield PatchReason(change.new, "submodule", "makes, moves or removes a submodule")
    if strange := modes - PLAIN - {LINK, SUBMODULE}:
        yield PatchReason(change.new, "mode", f"has mode {min(strange):o}; only 100644 and 100755 are for files")
    if change.new_mode == LINK:
        yield from _link(change)


def _link(change: FileChange) -> Iterator[PatchReason]:
    if change.old != change.new or change.binary or not change.written:
        yield PatchReason(change.new, "symlink", "is or becomes a symbolic link without showing where it points")
    elif forbidden_paths.leaves(change.new, target := "\n".join(change.written)):
        yield PatchReason(change.new, "symlink", f"points out of the tree, to {target[:200]!r}")
