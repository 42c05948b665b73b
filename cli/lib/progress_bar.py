"""A progress bar on standard error, if that is a terminal."""

from collections.abc import Callable

from rich.progress import BarColumn, Progress, TextColumn

from interlock.cli.lib.output import errors


def bar(message: str, quiet: bool) -> Progress:
    """A bar that disappears at the end of its block; none if `quiet`."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    made = Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal)
    made.add_task(message, total=None)
    return made


def on(shown: Progress) -> Callable[[int, int], None]:
    """A function that takes (done, total), in any unit, and draws it."""
    task = shown.task_ids[0]
    return lambda done, total: shown.update(task, completed=done, total=max(done, total))


def stages(shown: Progress) -> Callable[[str, int, int], None]:
    """A function that takes (stage, done, total), and draws it; a total of 0 is unknown."""
    task = shown.task_ids[0]

    def draw(stage: str, done: int, total: int) -> None:
        shown.update(task, description=stage, completed=done, total=max(done, total) or None)

    return draw
