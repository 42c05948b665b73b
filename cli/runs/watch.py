"""Follow a run until it ends: as a live tree in a terminal, as one line for each move anywhere else."""

from collections.abc import Callable
from time import monotonic, sleep

from rich.live import Live
from sqlalchemy.exc import DBAPIError

from cli.output import FAILED, console, errors, print_json
from cli.run_lines import line, styled
from cli.run_tree import draw
from db.connect import retryable
from workers.orchestration.watching import Event, View, Watch

Show = Callable[[View, list[Event]], None]

LOOK_SECONDS = 0.25
SETTLE_SECONDS = 10.0  # for what a failed or canceled run still has to cancel
PATIENCE_SECONDS = 30.0  # a database that restarts is back by then
CANCELED, INTERRUPTED, OUT_OF_TIME = 3, 130, 124  # the last two as shells report SIGINT, and `timeout` its own
OUTCOMES = {"succeeded": 0, "failed": FAILED, "canceled": CANCELED}
MARGIN = 2  # lines of the terminal left free: for the cursor, and for a line that wraps
LINES = 200  # of a tree that stays
KINDS = {"test_gate": "gate", "patch_ledger": "patch of"}


def follow(watch: Watch, *, timeout_seconds: float = 0.0, quiet: bool = False, as_json: bool = False) -> int:
    """Show a run until nothing in it moves any more.

    Args:
        watch: the run.
        timeout_seconds: stop following after so long; 0: never. The run goes on.
        quiet: show nothing on the way.
        as_json: one JSON object for where it stands, and one for each move from then on.

    Returns:
        The exit code: how the run ended, or that following ended before it.
    """
    try:
        if not (quiet or as_json) and console.is_terminal and not console.is_dumb_terminal:
            return _live(watch, timeout_seconds)
        return _until_settled(watch, timeout_seconds, _nothing if quiet else _json_lines if as_json else _lines)
    except KeyboardInterrupt:
        return _detached(watch.view, INTERRUPTED)


def _live(watch: Watch, timeout_seconds: float) -> int:
    try:
        with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:

            def show(view: View, _events: list[Event]) -> None:
                live.update(draw(view, lines=console.height - MARGIN), refresh=True)

            return _until_settled(watch, timeout_seconds, show)
    finally:
        console.print(draw(watch.view, lines=LINES))


def _until_settled(watch: Watch, timeout_seconds: float, show: Show) -> int:
    began = heard = monotonic()
    ended: float | None = None
    show(watch.view, [watch.view.standing])
    while not watch.view.settled and (ended is None or monotonic() - ended < SETTLE_SECONDS):
        if timeout_seconds and monotonic() - began > timeout_seconds:
            return _detached(watch.view, OUT_OF_TIME)
        sleep(LOOK_SECONDS)
        try:
            show(watch.view, watch.look())
            heard = monotonic()
        except DBAPIError as error:
            if not retryable(error) or monotonic() - heard > PATIENCE_SECONDS:
                raise
        ended = ended or (monotonic() if watch.view.ended else None)
    return OUTCOMES[watch.view.run["state"]]


def _detached(view: View, code: int) -> int:
    name = view.run["name"]
    for says in (
        f"run {name} goes on without you; it is {view.run['state']}",
        f"  interlock run watch {name}                  to see it again",
        f"  interlock run cancel {name} --by YOUR_NAME  to stop it",
    ):
        errors.print(says, highlight=False, markup=False, soft_wrap=True)
    return code


def _lines(view: View, events: list[Event]) -> None:
    for each in events:
        kind, why = KINDS.get(each.kind, each.kind), f"  {each.reason}" if each.reason else ""
        was = f"{each.was} → " if each.was else ""
        says = line((f"{each.at:%H:%M:%S} {kind} {each.name}: {was}", ""), styled(each.state), (why, "dim"))
        console.print(says, soft_wrap=True)


def _json_lines(view: View, events: list[Event]) -> None:
    for each in events:
        print_json(each, lines=True)


def _nothing(view: View, events: list[Event]) -> None:
    pass
