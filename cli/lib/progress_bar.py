"""A progress bar on standard error, if that is a terminal."""

from collections.abc import Callable

from rich.progress import BarColumn, Progress, TextColumn

from interlock.cli.lib.output import errors


def bar(message: str, quiet: bool) -> Progress:
    """A bar that disappears when its `with` block ends; not shown if `quiet`."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    made = Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal)
    made.add_task(message, total=None)
    return made


def on(shown: Progress) -> Callable[[int, int], None]:
    """Make a callback that shows progress on the bar: it takes (done, total), in any unit."""
    task = shown.task_ids[0]
    return lambda done, total: shown.update(task, completed=done, total=max(done, total))


def stages(shown: Progress) -> Callable[[str, int, int], None]:
    """Make a callback that shows a stage's progress on the bar: it takes (stage, done, total); total 0: unknown."""
    task = shown.task_ids[0]

    def draw(stage: str, done: int, total: int) -> None:
        shown.update(task, description=stage, completed=done, total=max(done, total) or None)

    return draw
