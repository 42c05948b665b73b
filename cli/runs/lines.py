"""What a run's tree says in one line each: of the run, of its workstreams, tasks, gates and patches."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from rich.text import Text

from workers.orchestration.watching import View
from workflows.orchestration.owed import ENDED

Row = Mapping[str, Any]
Words = tuple[str, str]  # what is said, and in which style

LOOKS: Mapping[str, Words] = {  # of a state, in lower case: its glyph and its colour
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
}
ORDER = {name: place for place, name in enumerate(LOOKS)}
BAR = 20
EXACT_SECONDS = 10  # below it tenths still tell something


def line(*words: Words) -> Text:
    """One line; nothing in it is read as markup, and no control character reaches the terminal."""
    return Text.assemble(*((_plain(word), style) for word, style in words if word), no_wrap=True, overflow="ellipsis")


def of_run(view: View) -> Text:
    """A run, with the bar of all its tasks."""
    run, tasks = view.run, list(view.tasks.values())
    return line(
        *_begin(run["state"], run["name"], "bold"),
        (f"  {run['title'] or ''}", ""),
        *_bar(tasks),
        (f"  {states(tasks)}" if tasks else "", "dim"),
        (f"  {lasted(run['started_at'], run['completed_at'], run['at'])}", ""),
    )


def of_workstream(row: Row, tasks: list[Row], now: datetime) -> Text:
    """A workstream, with the bar of its tasks, and why it ended short of completion."""
    began = min((each["started_at"] for each in tasks if each["started_at"]), default=None)
    why = "completed in an earlier run" if row["carried_from"] else row["reason"]
    return line(
        *_begin(row["state"], row["name"] or row["entity_id"], "bold", critical=row["is_critical"]),
        *(_bar(tasks) if tasks else ()),
        (f"  {lasted(began, row['completed_at'], now)}", "dim"),
        (f"  {why}" if why and row["state"] in ENDED["workstream"] - {"completed"} else "", "dim"),
    )


def of_task(row: Row, patches: list[Row], now: datetime) -> list[Text]:
    """A task: where it is, how long, on whom, what landed; its last error in a line of its own."""
    ended = row["state"] in ENDED["task"]
    said = [
        (f"  {lasted(row['started_at'], row['completed_at'], now)}" if row["state"] != "retrying" else "", "dim"),
        (f"  on {row['worker']}" if row["worker"] else "", "dim"),
        (f"  retry {row['retry_count']} of {row['max_retries']}" if row["retry_count"] else "", "yellow"),
        *((f"  {_patch(each)}", LOOKS.get(each["state"], ("", "magenta"))[1]) for each in patches),
        (f"  {row['reason']}" if row["reason"] else "", "dim"),
        ("  left out by an operator" if row["left_out"] else "", "yellow"),
    ]
    name = _own(row)
    lines = [line(*_begin(row["state"], name, "dim" if ended else "", critical=row["is_critical"]), *said)]
    if length(row) > 1:
        lines.append(line(("  " + last_line(row["last_error"]), "red")))
    return lines


def length(row: Row) -> int:
    """How many lines a task or gate takes."""
    return 2 if row.get("last_error") and row["state"] != "completed" else 1


def of_gate(row: Row, now: datetime) -> Text:
    """A gate, with the last line it printed if it failed."""
    name = f"{_own(row)} [{row['gate_type']}]" + (" run again" if row["retry_of"] else "")
    return line(
        *_begin(row["state"], name, ""),
        (f"  {lasted(row['started_at'], row['completed_at'], now)}", "dim"),
        (f"  {last_line(row['output'])}" if row["output"] else "", "red"),
    )


def states(rows: Iterable[Row]) -> str:
    """How many stand where: `2 running, 5 completed`."""
    counts = Counter(str(row["state"]).lower() for row in rows)
    return ", ".join(
        f"{counts[name]:,} {name}" for name in sorted(counts, key=lambda name: ORDER.get(name, len(ORDER)))
    )


def styled(state: str) -> Words:
    """A state's name, in its colour."""
    return state, LOOKS.get(state.lower(), ("", ""))[1]


def lasted(began: datetime | None, ended: datetime | None, now: datetime) -> str:
    """How long something took, or takes so far: `0.4s`, `12s`, `3m07s`, `2h05m`; nothing if it has not begun."""
    if began is None:
        return ""
    seconds = max(timedelta(), (ended or now) - began).total_seconds()
    if seconds < EXACT_SECONDS:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def last_line(text: str | None) -> str:
    """The last line that says something."""
    return next((each.strip() for each in reversed((text or "").splitlines()) if each.strip()), "")


def _begin(state: str, name: str, style: str, *, critical: bool = False) -> tuple[Words, ...]:
    sign, colour = LOOKS.get(state.lower(), ("•", ""))
    return (f"{sign} ", colour), (name, style), (" !" if critical else "", "red"), ("  ", ""), styled(state)


def _bar(every: list[Row]) -> tuple[Words, ...]:
    tasks = [row for row in every if not row["left_out"]]  # by an operator, or another is in its place
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


def _plain(word: str) -> str:
    return "".join(each if each.isprintable() else " " for each in word)
