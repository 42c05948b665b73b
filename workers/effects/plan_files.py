"""What a plan needs beside itself, looked at before anything is written: its repository, and its patches' texts."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from workers.repository import branches, place
from workers.repository.checking import PatchPolicy
from workers.repository.outcomes import Refusal
from workflows.errors import BadInput
from workflows.plan.plan import Plan
from workflows.plan.work import Patch

PATCH_BYTES = PatchPolicy().max_bytes


@dataclass(frozen=True, slots=True)
class Patches:
    """The patches of a plan: which task lands which, and each one's text."""

    of_task: dict[str, str]
    texts: dict[str, str]


def require_repository(plan: Plan, directory: Path) -> None:
    """Look whether the plan's repository, if it has one, can be worked in.

    Raises:
        BadInput: it is missing, bare, no repository, or has no such base branch; says what to do.
    """
    if plan.repository is None:
        return
    path, base = directory / plan.repository.path, plan.repository.base_branch
    found = place.find(path)
    if isinstance(found, Refusal):
        raise BadInput(f"repository.path: {found}")
    if found.git().run("check-ref-format", f"refs/heads/{base}", accept=(0, 1)).status:
        raise BadInput(f"repository.base_branch: {base!r} is no name for a branch")
    if branches.tip(found.git(), base) is None:
        raise BadInput(f"repository.base_branch: {path} has no branch {base!r} with a commit")


def patches(plan: Plan, directory: Path) -> Patches:
    """Read the patches that a plan's tasks land; the same text has the same id.

    Args:
        plan: tasks named in full.
        directory: the plan's; files must lie in it.

    Raises:
        BadInput: a file lies elsewhere, cannot be read, is empty, too large or no text.
    """
    found = {name: _text(name, task.patch, directory) for name, task in plan.tasks().items() if task.patch}
    return named(found.items())


def named(found: Iterable[tuple[str, str]]) -> Patches:
    """Patches by task and text, with their ids."""
    of_task, texts = {}, {}
    for task, text in found:
        patch_id = f"patch-{sha256(text.encode()).hexdigest()[:32]}"
        of_task[task], texts[patch_id] = patch_id, text
    return Patches(of_task, texts)


def _text(task: str, patch: Patch, directory: Path) -> str:
    where = f"task {task}: patch" + (f" {patch.file}" if patch.file else "")
    raw = patch.diff.encode() if patch.diff else _content(where, directory, str(patch.file))
    if len(raw) > PATCH_BYTES:
        raise BadInput(f"{where} has more than {PATCH_BYTES:,} bytes")
    if not raw.strip():
        raise BadInput(f"{where} is empty")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{where} is not UTF-8 text (byte {error.start})") from error
    if "\0" in text:
        raise BadInput(f"{where} holds a NUL character; write binary files as `git diff --binary` does")
    return text


def _content(where: str, directory: Path, file: str) -> bytes:
    try:
        path, root = (directory / file).resolve(), directory.resolve()
        if not path.is_relative_to(root):
            raise BadInput(f"{where} lies outside of the plan's folder {root}")
        if not path.is_file():
            raise BadInput(f"{where} is not a file in {root}")
        with path.open("rb") as opened:
            return opened.read(PATCH_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:  # ValueError: a NUL in the name; RuntimeError: a loop of links
        raise BadInput(f"{where} cannot be read: {error}") from error
