"""Follow a run until it ends: as a live tree in a terminal, otherwise as one line per move."""

from collections.abc import Callable
from time import monotonic, sleep

from rich.live import Live
from rich.text import Text
from sqlalchemy.exc import DBAPIError

from interlock.cli.lib.output import FAILED, console, errors, print_json, say
from interlock.cli.lib.projects import unusual
from interlock.cli.runs.lines import decide, of_regression, styled
from interlock.cli.runs.tree import draw, print_whole
from interlock.db.connection import retryable
from interlock.workers.orchestration.run_view import Event, RunView, Watch
from interlock.workflows.output.suggestions import offered

Show = Callable[[RunView, list[Event]], None]

LOOK_SECONDS = 0.25
SETTLE_SECONDS = 10.0  # how long to wait for a failed or canceled run to cancel its remaining parts
PATIENCE_SECONDS = 30.0  # long enough for a database to restart
CANCELED, INTERRUPTED, OUT_OF_TIME = 3, 130, 124  # 130: as shells report SIGINT; 124: as the `timeout` command
OUTCOMES = {"succeeded": 0, "failed": FAILED, "canceled": CANCELED}
MARGIN = 2  # lines of the terminal left free, for the cursor and for a line that wraps
LINES = 200  # maximum height of a tree that is printed once
KINDS = {
    "test_gate": "gate",
    "patch_ledger": "patch of",
    "regression": "regression of gate",
    "approval": "approval of the landing of",
}


def follow(watch: Watch, *, timeout_seconds: float = 0.0, quiet: bool = False, as_json: bool = False) -> int:
    """Show a run until nothing in it changes any more.

    Args:
        watch: the run.
        timeout_seconds: stop following after this time; 0: never. The run continues.
        quiet: show nothing meanwhile.
        as_json: print one JSON object for the current state, then one for each move.

    Returns:
        The exit code: how the run ended, or that following stopped before that.
    """
    try:
        if not (quiet or as_json) and console.is_terminal and not console.is_dumb_terminal:
            return _live(watch, timeout_seconds)
        return _until_settled(watch, timeout_seconds, _nothing if quiet else _json_lines if as_json else print_lines)
    except KeyboardInterrupt:
        return _detached(watch.view, INTERRUPTED)


def _live(watch: Watch, timeout_seconds: float) -> int:
    try:
        with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:

            def show(view: RunView, _events: list[Event]) -> None:
                live.update(draw(view, lines=console.height - MARGIN), refresh=True)

            return _until_settled(watch, timeout_seconds, show)
    finally:
        print_whole(watch.view, lines=LINES)


def _until_settled(watch: Watch, timeout_seconds: float, show: Show) -> int:
    began = heard = monotonic()
    ended: float | None = None
    show(watch.view, [watch.view.present_state])
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


def _detached(view: RunView, code: int) -> int:
    name, project = view.run["name"], unusual(view.run["project"])
    for message in (
        f"run {name} goes on without you; it is {view.run['state']}",
        f"  {offered('run', 'watch', name, project=project):<60}  to see it again",
        f"  {offered('run', 'cancel', name, project=project, by='YOUR_NAME', reason='WHY'):<60}  to stop it",
    ):
        say(message, to=errors)
    return code


def print_lines(view: RunView, events: list[Event]) -> None:
    """Print moves, each with what people can type where it asks something of them."""
    for each in events:
        kind, why = KINDS.get(each.kind, each.kind), f"  {each.reason}" if each.reason else ""
        was = f"{each.was} → " if each.was else ""
        say(f"{each.at:%H:%M:%S} {kind} {each.name}: {was}", styled(each.state), (why, "dim"))
        for below in _what_to_type(view, each):
            say((below.plain, "yellow"))


def _what_to_type(view: RunView, event: Event) -> list[Text]:
    """The commands that decide what an event asks of people."""
    if event.kind == "approval":
        return next((decide(row) for row in view.approvals.values() if row["id"] == event.id), [])
    row = view.regressions.get(event.id)
    return of_regression(row, view.run["name"])[1:] if row and row["state"] == event.state else []


def _json_lines(view: RunView, events: list[Event]) -> None:
    for each in events:
        print_json(each, lines=True)


def _nothing(view: RunView, events: list[Event]) -> None:
    pass
