"""What the commands of `interlock audit` share: a count of events on the terminal, and what a disk's fault means."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from interlock.cli.lib.output import errors
from interlock.workers.settings import settings
from interlock.workflows.errors import InterlockError


@contextmanager
def on_disk() -> Iterator[None]:
    """Turn errors of files into an error that says where to look."""
    try:
        yield
    except OSError as error:
        raise InterlockError(
            f"{error.filename or settings().audit_directory} cannot be used: {error.strerror}. Look at its owner and"
            " mode, at the disk's room, at INTERLOCK_AUDIT, INTERLOCK_SIGNING and INTERLOCK_STATE; nothing is lost, ask"
            " again"
        ) from error


@contextmanager
def counting(doing: str, as_json: bool, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many events were done; yields the function to call with that number."""
    count = (TextColumn("{task.completed:,} events"),)
    part = (BarColumn(), TextColumn("{task.completed:,}/{task.total:,}"))
    columns = (SpinnerColumn(), TextColumn(doing), *(count if total is None else part))
    with Progress(*columns, console=errors, transient=True, disable=as_json or not errors.is_terminal) as progress:
        bar = progress.add_task(doing, total=total)
        yield lambda done: progress.update(bar, completed=done)
