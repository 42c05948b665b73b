"""The lines of a run's tree: one for the run, each workstream, task and gate."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from rich.text import Text

from interlock.cli.lib import output
from interlock.cli.lib.projects import unusual
from interlock.workers.orchestration.run_view import RunView
from interlock.workflows.output.escaping import last_line
from interlock.workflows.output.suggestions import offered
from interlock.workflows.scheduling.next_trigger import ENDED

Row = Mapping[str, Any]
Words = tuple[str, str]  # a text and its style
LOOKS: Mapping[str, Words] = {  # state in lower case -> glyph, colour
    "pending": ("·", "dim"),
    "planned": ("·", "dim"),
    "ready": ("○", "cyan"),
    "queued": ("○", "cyan"),
    "running": ("▶", "bold cyan"),
    "executing": ("▶", "cyan"),
    "validating": ("◆", "cyan"),
    "retrying": ("↻", "yellow"),
    "blocked": ("■", "yellow"),
    "paused": ("‖", "yellow"),
    "failed": ("✗", "bold red"),
    "quarantined": ("✗", "bold red"),
    "cancelled": ("⊘", "dim yellow"),
    "canceled": ("⊘", "bold yellow"),
    "skipped": ("»", "dim"),
    "completed": ("✓", "green"),
    "succeeded": ("✓", "bold green"),
    "passed": ("✓", "green"),
    "committed": ("✓", "green"),
    "searching": ("▶", "cyan"),
    "proposed": ("?", "bold yellow"),
    "rolling_back": ("▶", "yellow"),
    "unexplained": ("?", "dim"),
    "rejected": ("⊘", "dim"),
    "rolled_back": ("↶", "yellow"),
}
ORDER = {name: place for place, name in enumerate(LOOKS)}
BAR = 20
AGAIN = 3  # of at most so many failed workstreams the command is shown
LAST_LINES = 5  # of what a failed task printed
EXACT_SECONDS = 10  # shorter durations are shown with tenths


def line(*words: Words) -> Text:
    """One line, cut off with an ellipsis at the terminal's width. Markup and control characters are escaped."""
    drawn = output.line(*words)
    drawn.no_wrap, drawn.overflow = True, "ellipsis"
    return drawn


def of_run(view: RunView) -> Text:
    """A run, with a progress bar of all its tasks."""
    run, tasks = view.run, list(view.tasks.values())
    return line(
        *_begin(run["state"], run["name"], "bold"),
        (f"  {run['title'] or ''}", ""),
        *_bar(tasks),
        (f"  {states(tasks)}" if tasks else "", "dim"),
        (f"  {lasted(run['started_at'], run['completed_at'], run['at'])}", ""),
    )


def of_workstream(row: Row, tasks: list[Row], frozen: Row | None, now: datetime) -> Text:
    """A workstream, with a progress bar of its tasks; why it is frozen, or why it ended without completing."""
    began = min((each["started_at"] for each in tasks if each["started_at"]), default=None)
    why = "completed in an earlier run" if row["carried_from"] else row["reason"]
    name = (row["name"] or row["entity_id"]) + (" done again" if row["done_again"] else "")
    return line(
        *_begin(row["state"], name, "bold", critical=row["is_critical"]),
        *(_bar(tasks) if tasks else ()),
        (f"  {lasted(began, row['completed_at'], now)}", "dim"),
        (f"  {_held(frozen)}" if frozen else "", "yellow"),
        (f"  {why}" if why and row["state"] in ENDED["workstream"] - {"completed"} else "", "dim"),
    )


def _held(frozen: Row) -> str:
    reason, since = frozen["reason"] or "its phase was not opened", f"{frozen['since']:%Y-%m-%d %H:%M} UTC"
    return f"frozen: {reason}, since {since} (phase {frozen['phase']})"


def of_task(row: Row, patches: list[Row], waits: Row | None, now: datetime) -> list[Text]:
    """A task: state, duration, worker, the breaker it waits for, patches; below it its last error and, if it failed,
    the end of its output.
    """
    ended = row["state"] in ENDED["task"]
    details = [
        (f"  {lasted(row['started_at'], row['completed_at'], now)}" if row["state"] != "retrying" else "", "dim"),
        (f"  on {row['worker']}" if row["worker"] else "", "dim"),
        (f"  waits for the breaker of {waits['tool']}, {ceil(waits['seconds'])} s" if waits else "", "yellow"),
        (f"  retry {row['retry_count']} of {row['max_retries']}" if row["retry_count"] else "", "yellow"),
        *((f"  {_patch(each)}", LOOKS.get(each["state"], ("", "magenta"))[1]) for each in patches),
        (f"  {row['reason']}" if row["reason"] else "", "dim"),
        ("  left out by an operator" if row["left_out"] else "", "yellow"),
    ]
    name = _own(row)
    lines = [line(*_begin(row["state"], name, "dim" if ended else "", critical=row["is_critical"]), *details)]
    if _went_wrong(row):
        lines.append(line(("  " + last_line(row["last_error"]), "red")))
    lines += [line((f"  │ {each}", "dim")) for each in _last_printed(row)]
    return lines


def length(row: Row) -> int:
    """The number of lines that a task or gate takes."""
    return 1 + _went_wrong(row) + len(_last_printed(row))


def of_gate(row: Row, now: datetime) -> Text:
    """A gate, with the last line of its output if it failed."""
    name = f"{_own(row)} [{row['gate_type']}]" + (" run again" if row["retry_of"] else "")
    return line(
        *_begin(row["state"], name, ""),
        (f"  {lasted(row['started_at'], row['completed_at'], now)}", "dim"),
        (f"  {last_line(row['output'])}" if row["output"] else "", "red"),
    )


def of_regression(row: Row, run: str) -> list[Text]:
    """A search for the patch that made a gate fail, and below it what a person can do."""
    begin = _begin(row["state"], f"regression of gate {row['gate']}", "bold")
    lines = [line(*begin, (f"  {last_line(row['reason'])}" if row["reason"] else "", "dim"))]
    if row["state"] == "proposed":
        approve, reject = (offered("regression", each, row["id"], reason="WHY") for each in ("approve", "reject"))
        lines += [line((f"  roll it back: {approve}", "yellow")), line((f"  or do not: {reject}", "yellow"))]
    if row["state"] == "unexplained":
        lines.append(line((f"  search again: {offered('regression', 'find', run=run, gate='COMMAND')}", "dim")))
    return lines


def of_approval(workstream: str, row: Row) -> list[Text]:
    """An approval that a workstream's landing waits for, and below it what a decider types."""
    deciders = row["deciders"]
    begin = _begin("proposed", f"landing of {workstream}", "bold")[:2]
    return [line(*begin, (f"  waits for the approval of {' or '.join(deciders)}", "yellow")), *decide(row)]


def decide(row: Row) -> list[Text]:
    """What a decider of a landing types."""
    how = {"by": row["deciders"][0], "if_version": row["version"]}
    return [
        line((f"  {words}: {offered('fire', row['id'], trigger, **how)}", "yellow"))
        for trigger, words in (("approve", "let it land"), ("reject", "or do not"))
    ]


def do_again(view: RunView) -> list[Text]:
    """What to type about what did not complete: while the run goes on for each workstream, then for the whole run."""
    name, state, where = view.run["name"], view.run["state"], {"project": unusual(view.run["project"])}
    if not view.run["plan"] or state == "succeeded":
        return []
    if view.ended:
        return [line((f"  do what did not complete: {offered('run', 'resume', name, **where)}", "yellow"))]
    lost = [row for row in view.workstreams.values() if row["state"] == "failed" and not row["left_out"]]
    again = {each["name"]: offered("run", "retry", each["entity_id"], **where, reason="WHY") for each in lost[:AGAIN]}
    return [line((f"  do {each} again: {command}", "yellow")) for each, command in again.items()]


def states(rows: Iterable[Row]) -> str:
    """The number of rows in each state: `2 running, 5 completed`."""
    counts = Counter(str(row["state"]).lower() for row in rows)
    return ", ".join(
        f"{counts[name]:,} {name}" for name in sorted(counts, key=lambda name: ORDER.get(name, len(ORDER)))
    )


def styled(state: str) -> Words:
    """A state's name, in its colour."""
    return state, LOOKS.get(state.lower(), ("", ""))[1]


def lasted(began: datetime | None, ended: datetime | None, now: datetime) -> str:
    """The duration, so far if it has not ended: `0.4s`, `12s`, `3m07s`, `2h05m`; empty if it has not begun."""
    if began is None:
        return ""
    seconds = max(timedelta(), (ended or now) - began).total_seconds()
    if seconds < EXACT_SECONDS:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _went_wrong(row: Row) -> bool:
    return bool(row.get("last_error")) and row["state"] != "completed"


def _last_printed(row: Row) -> list[str]:
    """The last lines that a failed task printed, unless its error says as much."""
    if row["state"] != "failed":
        return []
    printed = [each for each in (row["output"] or "").splitlines() if each.strip()][-LAST_LINES:]
    return printed if len(printed) > 1 else []


def _begin(state: str, name: str, style: str, *, critical: bool = False) -> tuple[Words, ...]:
    sign, colour = LOOKS.get(state.lower(), ("•", ""))
    return (f"{sign} ", colour), (name, style), (" !" if critical else "", "red"), ("  ", ""), styled(state)


def _bar(every: list[Row]) -> tuple[Words, ...]:
    tasks = [row for row in every if not row["left_out"]]  # left out by an operator, or replaced by another task
    total = len(tasks)
    done = sum(row["state"] == "completed" for row in tasks)
    lost = sum(row["state"] in ("failed", "cancelled") for row in tasks)
    full, red = (BAR * count // max(1, total) for count in (done, lost))
    rest = BAR - full - red
    return ("  ", ""), ("━" * full, "green"), ("━" * red, "red"), ("─" * rest, "dim"), (f" {done:,}/{total:,}", "")


def _patch(row: Row) -> str:
    at = f" {row['commit_sha'][:9]}" if row["commit_sha"] else ""
    return f"patch {row['state']}{at}" + (f": {last_line(row['reason'])}" if row["reason"] else "")


def _own(row: Row) -> str:
    return str(row["name"] or row["entity_id"]).rpartition("/")[2]
