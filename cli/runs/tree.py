"""Draws a run as a tree: workstreams with progress bars, and below each as many tasks and gates as fit."""

from collections.abc import Iterator, Mapping
from uuid import UUID

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from interlock.cli.lib.output import console, picture, say
from interlock.cli.runs.lines import (
    Row,
    do_again,
    length,
    line,
    of_approval,
    of_gate,
    of_regression,
    of_run,
    of_task,
    of_workstream,
    states,
)
from interlock.workers.orchestration.run_view import RunView
from interlock.workflows.output.counts import number_of

# Which states are shown first if there is no room for all; states that are not listed come last.
URGENCY = {
    name: rank
    for rank, names in enumerate(
        (("running", "failed"), ("retrying", "validating"), ("blocked",), ("queued",), ("cancelled",), ("pending",))
    )
    for name in names
}
GUIDE = 4  # columns of the line that leads to a branch
CALM = ("completed", "skipped", "cancelled", "planned")  # workstreams that are shown last


def draw(view: RunView, *, lines: int) -> Tree:
    """The run as a tree.

    Args:
        view: the run, as last read.
        lines: the maximum number of lines, at least 2; the least urgent rows are summarized.
    """
    tree = Tree(of_run(view), guide_style="dim")
    present = (row for row in view.workstreams.values() if not row["left_out"])
    workstreams = sorted(present, key=lambda row: (row["state"] in CALM, row["id"].int))
    below = _below(view)[: max(0, lines - 2)]
    room = max(1, lines - 1 - len(below))
    fitting = room if len(workstreams) <= room else room - 1
    shown, hidden = workstreams[:fitting], workstreams[fitting:]
    tasks = {row["id"]: view.tasks_of(row["id"]) for row in shown}
    items = {row["id"]: tasks[row["id"]] + view.gates_of(row["id"]) for row in shown}
    shares = _shared(room - len(shown) - bool(hidden), {id_: _length(rows) for id_, rows in items.items()})
    for row in sorted(shown, key=lambda row: row["id"].int):
        branch = tree.add(of_workstream(row, tasks[row["id"]], view.frozen.get(row["id"]), view.run["at"]))
        for item in _fitted(view, items[row["id"]], shares[row["id"]]):
            branch.add(item)
    if hidden:
        tree.add(line((f"… {number_of(len(hidden), 'more workstream')}: {states(hidden)}", "dim")))
    for each in below:
        tree.add(each)
    return tree


def print_whole(view: RunView, *, lines: int) -> None:
    """Print the run as a tree, and below it each command that the terminal is too narrow for, to be copied whole."""
    picture(draw(view, lines=lines))
    for each in _below(view):
        if "interlock " in each.plain and each.cell_len + GUIDE > console.width:
            say((each.plain.strip(), "yellow"))


def _below(view: RunView) -> list[Text]:
    """What is not of one workstream, and what people can type about it."""
    asked = [each for id_, row in view.approvals.items() for each in of_approval(_name(view.workstreams[id_]), row)]
    regressions = [each for row in view.regressions.values() for each in of_regression(row, view.run["name"])]
    return [*asked, *regressions, *do_again(view)]


def _name(workstream: Row) -> str:
    return str(workstream["name"] or workstream["entity_id"])


def _fitted(view: RunView, rows: list[Row], room: int) -> Iterator[RenderableType]:
    """The most urgent tasks and gates, in the plan's order, and a line that summarizes the others."""
    chosen, used = set(), 0
    room -= _length(rows) > room
    for place, row in sorted(enumerate(rows), key=lambda each: _urgency(each[1])):
        if used + length(row) <= room:
            chosen.add(place)
            used += length(row)
    yield from (_drawn(view, rows[place]) for place in sorted(chosen))
    if room >= 0 and (left := [row for place, row in enumerate(rows) if place not in chosen]):
        yield line((f"… {states(left)}", "dim"))


def _drawn(view: RunView, row: Row) -> RenderableType:
    if "gate_type" in row:
        return of_gate(row, view.run["at"])
    return Group(*of_task(row, view.patches_of(row["id"]), view.waits.get(row["id"]), view.run["at"]))


def _shared(room: int, wanted: Mapping[UUID, int]) -> dict[UUID, int]:
    """The number of lines for each workstream: small ones get all they need, the others share the rest equally."""
    shares: dict[UUID, int] = {}
    for number, (id_, wants) in enumerate(sorted(wanted.items(), key=lambda each: each[1])):
        shares[id_] = min(wants, room // (len(wanted) - number))
        room -= shares[id_]
    return shares


def _urgency(row: Row) -> int:
    return URGENCY.get(str(row["state"]).lower(), len(URGENCY))


def _length(rows: list[Row]) -> int:
    return sum(map(length, rows))
