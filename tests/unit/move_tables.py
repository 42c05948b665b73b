"""Machines as `machines_by_hand.txt` has them: not derived from the code, which can so be held to them.

Each part of that file is for a machine's version, or several: where it is from, and which version it adds to, if any;
its states, of which the first is the initial one, and in which it ends; then a line a rule, which is
`source source -> dest`, the triggers where they are fixed (`: a b`), and the severity where it is not info (`! error`).
Severities are EVENT-3's by kind of transition and those that a transition's own text gives: what a person decides is a
warning, as a retry and a recovery are.
"""

import re
from dataclasses import dataclass
from pathlib import Path

PART = re.compile(r"(\w+) ([\d. ]+) as in (.+?)(?:, and all of ([\d.]+))?")
RULE = re.compile(r"([\w ]+) -> (\w+)(?: : ([\w ]+?))?(?: ! (\w+))?")


@dataclass(frozen=True)
class Table:
    """A machine as it is written out."""

    source: str
    states: tuple[str, ...]
    terminal: frozenset[str]
    pairs: dict[tuple[str, str], frozenset[str]]
    severities: dict[tuple[str, str], str]


NOTHING = Table("", (), frozenset(), {}, {})
TABLES: dict[tuple[str, str], Table] = {}


def _read(part: str) -> None:
    head, *lines = part.splitlines()
    found = PART.fullmatch(head)
    assert found, head
    type_, versions, source, base = found.groups()
    known = TABLES[type_, base] if base else NOTHING
    states, ends, pairs, severities = known.states, known.terminal, {**known.pairs}, {**known.severities}
    for line in lines:
        word, _, listed = line.partition(" ")
        if word == "states":
            states += tuple(listed.split())
        elif word == "ends":
            ends |= {*listed.split()}
        else:
            rule = RULE.fullmatch(line)
            assert rule, line
            sources, entered, triggers, severity = rule.groups()
            for left in sources.split():
                pairs[left, entered] = frozenset((triggers or "").split())
                severities[left, entered] = severity or "info"
    TABLES.update({(type_, each): Table(source, states, ends, pairs, severities) for each in versions.split()})


for each in Path(__file__).with_name("machines_by_hand.txt").read_text().strip().split("\n\n"):
    _read(each)

# Moves along a pair of the table by another trigger than the one that gives the pair its severity.
OTHERWISE_SEVERE = {
    ("workstream", "patch_set_aside", "executing"): "error",  # WORKSTREAM-9; nothing critical failed
    ("workstream", "tasks_lost", "executing"): "error",
    ("worker", "max_timeout_exceeded", "idle"): "error",
    ("worker", "max_timeout_exceeded", "suspended"): "error",
    ("uet_worker", "shutdown_requested", "SPAWNING"): "info",
    ("uet_worker", "worker_crashed", "IDLE"): "error",
    ("uet_worker", "worker_crashed", "DRAINING"): "error",
    ("patch_ledger", "roll_back", "committed"): "critical",
    ("job", "timeout_exceeded", "RUNNING"): "error",
    ("schedule", "end", "active"): "info",  # by whoever made it; not by others
    ("schedule", "end", "paused"): "info",
}

# EVENT-4.
REQUIRED_METADATA = {
    "task": {"worker_id", "duration_seconds", "retry_count", "exit_code", "timeout_occurred"},
    "workstream": {"total_tasks", "completed_tasks", "failed_tasks", "duration_seconds", "critical_failure"},
    "patch_ledger": {"patch_id", "validation_results", "commit_sha", "quarantine_reason"},
    "operator_grant": {"terms"},
    "api_token": {"terms"},
    "deprecation": {"terms"},
    "narrowing": {"terms"},
    "limit": {"terms"},
    "handover": {"terms"},
    "budget": {"terms"},
    "brake": {"terms"},
    "subscription": {"terms"},
    "worker": {"heartbeat_status", "current_load", "last_heartbeat_age_seconds", "crash_detected"},
    "uet_worker": {"heartbeat_status", "current_load", "last_heartbeat_age_seconds", "crash_detected"},
}
