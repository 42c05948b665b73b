"""The table that a run prints and the file that it leaves."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.finding import Finding

RESULTS = Path(__file__).parent / "results"
MARKS = {True: "[green]✔ pass[/]", False: "[red]✘ falls short[/]", None: ""}


def show(console: Console, machine: dict[str, Any], findings: Sequence[Finding]) -> None:
    """Print the machine's description, the table, and the notes below it."""
    console.print()
    for line in _machine_lines(machine):
        console.print(line, highlight=False, soft_wrap=True)
    table = Table(title="median of the rounds (smallest – largest)", title_justify="left", pad_edge=False)
    for heading in ("", "what", "ours", "theirs", "unit", "ratio", "bar", ""):
        table.add_column(heading, justify="right" if heading in ("ours", "theirs", "ratio", "bar") else "left")
    for each in findings:
        bar = str(each.bar) if each.bar else ""
        row = (_spread(each.ours), _spread(each.theirs), each.unit, _spread(each.ratios), bar, MARKS[each.met])
        table.add_row(each.name, each.compared, *row)
    console.print(table)
    for each in findings:
        if each.note:
            console.print(f"[bold]{each.name}[/]: {each.note}", highlight=False, soft_wrap=True)


def write(machine: dict[str, Any], findings: Sequence[Finding], *, also: Path | None, effort: str) -> Path:
    """Write the results file (and a copy to `also`); where it is."""
    content = {"machine": machine, "effort": effort, "findings": [each.as_json() for each in findings]}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{machine['at'].replace(':', '').replace('+0000', 'Z')}.json"
    for path in filter(None, (target, also)):
        path.write_text(text)
    return target


def _spread(figures: Sequence[float]) -> str:
    if not figures:
        return ""
    middle, least, most = _number(median(figures)), _number(min(figures)), _number(max(figures))
    return middle if least == most else f"{middle} ({least} – {most})"


def _number(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.1f}" if abs(figure) >= 10 else f"{figure:.2f}"


def _machine_lines(machine: dict[str, Any]) -> list[str]:
    load = " ".join(f"{each:.2f}" for each in machine["load_average"])
    packages = ("celery", "kombu", "redis", "sqlalchemy", "psycopg", "transitions")
    return [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['os']}; load {load}",
        f"data on {machine['filesystem']}, a durable 8 KiB write takes {machine['sync_microseconds']} µs",
        f"Python {machine['python']}, PostgreSQL {machine['postgresql']}, Valkey {machine['valkey']}, "
        + ", ".join(f"{name} {machine[name]}" for name in packages)
        + f"; commit {machine['commit']}, {machine['at']}",
    ]
