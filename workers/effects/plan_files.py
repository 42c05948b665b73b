"""Checks a plan's repository, sandbox and patch files before anything is written."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from interlock.workers.git import branches, repository
from interlock.workers.git.policy import PatchPolicy
from interlock.workers.git.results import Refusal
from interlock.workers.isolation.boundary import check_folder, check_reads, secrets
from interlock.workers.settings import Settings
from interlock.workflows.errors import BadInput
from interlock.workflows.plan.phases import Phase
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.read import read_phases
from interlock.workflows.plan.tasks import Gate, Patch, Task

PATCH_BYTES = PatchPolicy().max_bytes


@dataclass(frozen=True, slots=True)
class Patches:
    """The patches of a plan: the patch id of each task, and the text of each patch."""

    of_task: dict[str, str]
    texts: dict[str, str]


def installation_phases(settings: Settings) -> dict[str, Phase] | None:
    """The phases for all plans, if the installation has a file of them (`INTERLOCK_PHASES`).

    Raises:
        BadInput: the file cannot be read.
        PlanInvalid: it has errors.
    """
    if settings.phases is None:
        return None
    try:
        return read_phases(settings.phases.read_bytes(), name=str(settings.phases))
    except OSError as error:
        raise BadInput(f"INTERLOCK_PHASES: {settings.phases} cannot be read: {error}") from error


def require_phases(plan: Plan, settings: Settings) -> None:
    """Check that the plan has the phases of the installation, if that has any (PHASE-8).

    Raises:
        BadInput: it has others; or see `installation_phases`.
    """
    if (wanted := installation_phases(settings)) is not None and plan.phases != wanted:
        raise BadInput(
            "the plan has other phases than INTERLOCK_PHASES: let it declare none, and read it with those "
            "(`read_plan(…, phases=…)`)"
        )


def require_repository(plan: Plan, directory: Path) -> None:
    """Check that the plan's repository, if it has one, can be used.

    Raises:
        BadInput: it is missing, bare, not a repository, or lacks the base branch; the message says what to do.
    """
    if plan.repository is None:
        return
    path, base = directory / plan.repository.path, plan.repository.base_branch
    found = repository.find(path)
    if isinstance(found, Refusal):
        raise BadInput(f"repository.path: {found}")
    if found.git().run("check-ref-format", f"refs/heads/{base}", accept=(0, 1)).status:
        raise BadInput(f"repository.base_branch: {base!r} is not a valid branch name")
    if branches.tip(found.git(), base) is None:
        raise BadInput(f"repository.base_branch: {path} has no branch {base!r} with a commit")


def require_within(plan: Plan, directory: Path, folders: Collection[Path]) -> None:
    """Check that a plan of somebody who has no account here uses no other paths than it may (HTTP-20).

    Args:
        plan: with full task names.
        directory: the base of its relative paths.
        folders: in which all that it names must be.

    Raises:
        BadInput: a path is in none of them; the message says nothing else of it.
    """
    processes: dict[str, Task | Gate] = {**plan.tasks(), **plan.gates()}
    named = [directory / path for each in processes.values() for path in each.reads]
    base = directory / plan.repository.path if plan.repository else directory
    named += [base / (each.cwd or "") for each in processes.values() if each.command or each.shell]
    if plan.repository is not None:
        named.append(base)
    if any(task.patch and task.patch.file for task in plan.tasks().values()):
        named.append(directory)
    allowed = [each.resolve() for each in folders]
    if outside := [each for each in named if not any(each.resolve().is_relative_to(one) for one in allowed)]:
        raise BadInput(
            f"{outside[0]}: a plan that comes over HTTP uses paths of the server in INTERLOCK_API_PLAN_FOLDERS only. "
            "Name such a `directory`, or use no commands, repository and patch files"
        )


def require_sandbox(plan: Plan, directory: Path, settings: Settings) -> None:
    """Check that the plan's commands may have the sandbox options that they ask for.

    Raises:
        BadInput: a command turns the sandbox off, or asks to read a path that is missing or Interlock's own; or without
            a repository, the folder is one that commands may not have.
    """
    commands: dict[str, Task | Gate] = {**plan.tasks(), **plan.gates()}
    folders = {each.cwd or "" for each in commands.values() if each.command or each.shell}
    where = [directory / each for each in sorted(folders)]
    if where and plan.repository is None:
        check_folder(directory, where, settings)
    for name, each in commands.items():
        if each.sandbox == "off" and settings.sandbox != "off":
            raise BadInput(f"{name}: sandbox: a plan cannot switch it off; INTERLOCK_SANDBOX is {settings.sandbox}")
        if each.reads:
            check_reads([directory / path for path in each.reads], secrets(settings))


def patches(plan: Plan, directory: Path) -> Patches:
    """Read the patches that a plan's tasks land; the same text has the same id.

    Args:
        plan: with full task names.
        directory: the plan's; files must lie in it.

    Raises:
        BadInput: a file is outside the directory, unreadable, empty, too large or not text.
    """
    found = {name: _text(name, task.patch, directory) for name, task in plan.tasks().items() if task.patch}
    return named(found.items())


def named(found: Iterable[tuple[str, str]]) -> Patches:
    """Patches from pairs of task and text, with their ids."""
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
            raise BadInput(f"{where} is outside the plan's folder {root}")
        if not path.is_file():
            raise BadInput(f"{where} is not a file in {root}")
        with path.open("rb") as opened:
            return opened.read(PATCH_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:  # ValueError: a NUL in the name; RuntimeError: a loop of links
        raise BadInput(f"{where} cannot be read: {error}") from error
