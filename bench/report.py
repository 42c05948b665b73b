"""The table that a run prints, and the results file that it writes."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.finding import Finding

RESULTS = Path(__file__).parent / "results"
MARKS = {True: "[green]✔ pass[/]", False: "[red]✘ falls short[/]", None: ""}


def show(console: Console, machine: dict[str, Any], findings: Sequence[Finding]) -> None:
    """Print the machine's description, the table, and below it what each row compares."""
    console.print()
    for line in _machine_lines(machine):
        console.print(line, highlight=False, soft_wrap=True)
    table = Table(title="median of the rounds (smallest .. largest)", title_justify="left", box=SIMPLE_HEAD)
    for heading in ("", "ours", "theirs", "", "ratio", "bar", ""):
        table.add_column(heading, justify="left" if heading == "" else "right", no_wrap=True)
    for each in findings:
        bar = str(each.bar) if each.bar else ""
        ours = _middle(each.ours) if each.theirs else _spread(each.ours)
        row = (ours, _middle(each.theirs), each.unit, _spread(each.ratios), bar, MARKS[each.met])
        table.add_row(each.name, *row)
    console.print(table)
    for each in findings:
        console.print(f"[bold]{each.name}[/] {each.compared}", highlight=False, soft_wrap=True)
        if each.note:
            console.print(f"    {each.note}", highlight=False, soft_wrap=True)
    console.print()


def write(machine: dict[str, Any], findings: Sequence[Finding], *, also: Path | None, effort: str) -> Path:
    """Write the results file, and a copy to `also`; returns its path."""
    content = {"machine": machine, "effort": effort, "findings": [each.as_json() for each in findings]}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{machine['at'].replace(':', '').replace('+0000', 'Z')}.json"
    for path in filter(None, (target, also)):
        path.write_text(text)
    return target


def _middle(figures: Sequence[float]) -> str:
    return _number(median(figures)) if figures else ""


def _spread(figures: Sequence[float]) -> str:
    if len(figures) < 2:
        return _middle(figures)
    return f"{_middle(figures)} ({_number(min(figures))} .. {_number(max(figures))})"


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
