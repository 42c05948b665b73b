"""`docs/spec/` says what the definitions say, each of its rules has one id, and code cites nothing else."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from interlock.workflows.catalogue import WORKFLOWS
from interlock.workflows.definition import AUTHORITIES, Definition

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "spec").glob("*.md"))
RULE = re.compile(r"^- \*\*([A-Z]+-\d+)\*\*", re.MULTILINE)
# What a citation of a text that is not in this repository would look like.
ELSEWHERE = re.compile(
    "|".join(
        (
            "SS" + "OT",
            r"\bMV" + r"P\b",
            "PIT" + "FALLS",
            "(?i:adr)[-_]" + "0",
            "of_the_" + "design",
            r"\b[Rr]ul" + r"ings? \d",
        )
    )
)
# Page -> the definition of each of its pairs of tables, states and transitions, in their order.
TABLES: dict[str, tuple[str | tuple[str, str], ...]] = {
    "phase.md": ("phase",),
    "run.md": ("run",),
    "workstream.md": ("workstream",),
    "task.md": ("task",),
    "worker.md": ("worker", "uet_worker"),
    "patch.md": ("patch_ledger",),
    "gate.md": ("test_gate",),
    "regression.md": ("regression",),
    "rollback.md": ("rollback",),
    "breaker.md": ("circuit_breaker",),
    "delivery.md": ("story", "sprint", "pr_review", "approval"),
    "supervision.md": ("supervised_worker", "job"),
    "governance.md": ("operator_grant", "deprecation", "redrive"),
    "token.md": ("api_token",),
    "refusals.md": ("refusal_log",),
    "narrowing.md": ("narrowing",),
    "limit.md": ("limit",),
    "handover.md": ("handover",),
    "brake.md": ("budget", "brake"),
    "schedule.md": ("schedule",),
    "subscription.md": ("subscription",),
    "legacy.md": (("workstream", "0.1.0"), ("step", "0.1.0"), ("workstream", "0.2.0"), ("task", "0.2.0")),
}
NEWEST = {type_: max(version for each, version in WORKFLOWS if each == type_) for type_, _ in WORKFLOWS}


def definition(named: str | tuple[str, str]) -> Definition:
    return WORKFLOWS[(named, NEWEST[named]) if isinstance(named, str) else named]


CASES = [
    pytest.param(page, number, definition(named), id=f"{page} {definition(named).type}")
    for page, all_named in TABLES.items()
    for number, named in enumerate(all_named)
]


def tables(page: str, heading: str) -> list[list[list[str]]]:
    """The rows, as cells, of each table of a page that begins with this column."""
    text = (ROOT / "docs" / "spec" / page).read_text()
    found = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [
        [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows.split("\n")[:-1]]
        for rows in found
    ]


@cache
def rules() -> Counter[str]:
    return Counter(rule for page in PAGES for rule in RULE.findall(page.read_text()))


def tracked() -> Iterator[tuple[str, str]]:
    """Path and text of every file of the repository that is text."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        path = ROOT / name
        if path.is_file() and path.suffix in {".py", ".sql", ".md", ".yaml", ".yml", ".toml", ".json", ".mako", ""}:
            yield name, path.read_text(encoding="utf-8")


def test_every_rule_has_one_id() -> None:
    assert len(rules()) > 200
    assert [rule for rule, times in rules().items() if times > 1] == []


def test_every_rule_that_is_cited_exists() -> None:
    words = "|".join(sorted({rule.partition("-")[0] for rule in rules()}))
    cited = re.compile(rf"(?<![\w-])(?:{words})-\d+\b(?!-)")
    found = {(name, rule) for name, text in tracked() for rule in cited.findall(text)}
    assert {(name, rule) for name, rule in found if rule not in rules()} == set()


def test_nothing_is_cited_that_is_not_here() -> None:
    found = [
        f"{name}:{number}"
        for name, text in tracked()
        for number, line in enumerate(text.splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert found == [], "say it in docs/spec/, and cite that"


@pytest.mark.parametrize(("page", "number", "machine"), CASES)
def test_states_are_those_of_the_definition(page: str, number: int, machine: Definition) -> None:
    rows = tables(page, "state")[number]
    assert {row[0] for row in rows} == set(machine.states)
    if machine.terminal:
        assert {row[0] for row in rows if row[2].startswith("yes")} == set(machine.terminal)


@pytest.mark.parametrize(("page", "number", "machine"), CASES)
def test_transitions_are_those_of_the_definition(page: str, number: int, machine: Definition) -> None:
    told = Counter((*row[:4], row[-1]) for row in tables(page, "trigger")[number])
    assert told == Counter(
        (move.trigger, source, move.dest, ", ".join(move.authorities), move.severity)
        for move in machine.transitions
        for source in move.sources
    )


def test_authorities_are_those_there_are() -> None:
    assert [row[0] for row in tables("authority.md", "authority")[0]] == list(AUTHORITIES)


def test_every_type_has_its_tables() -> None:
    told = {(each.type, each.version) for _, _, each in (case.values for case in CASES)}  # type: ignore[misc]
    assert {(type_, version) for type_, version in NEWEST.items()} <= told


def test_every_version_is_listed() -> None:
    text = (ROOT / "docs" / "spec" / "versioning.md").read_text()
    rows = [row for row in text.splitlines() if row.startswith("| `")]
    listed = {type_: row for row in rows for type_ in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert [key for key in WORKFLOWS if key[1] not in listed.get(key[0], "")] == []
