"""A replay with a progress bar for each of its stages."""

from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from demo.replay import Progress, Replayed, replay
from interlock.cli.lib.output import errors
from interlock.workers.client.client import Client


def with_bars(
    client: Client,
    file: Path,
    *,
    reviewer: str,
    patience_seconds: float,
    quiet: bool = False,
    also: Progress = lambda *_: None,
) -> Replayed:
    """Replay `file`, with bars on standard error unless `quiet`; `also` is told as well.

    Raises what `demo.replay.replay` raises.
    """
    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=errors, disable=quiet or not errors.is_terminal) as progress:
        bars: dict[str, TaskID] = {}

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task(stage, total=total)
            progress.update(bars[stage], completed=done)
            also(stage, done, total)

        return replay(client, file, reviewer=reviewer, progress=tell, patience_seconds=patience_seconds)
