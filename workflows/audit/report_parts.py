"""Parts of a report that repeat its moves: overrides, gates and commits, for readers who look for just these."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interlock.workflows.audit.events import OVERRIDE
from interlock.workflows.audit.report import Commit, Landing, Move, ReportedGate, ReportedOverride

ENTERED: Mapping[tuple[str, str], Landing] = {
    ("patch_ledger", "committed"): "committed",
    ("workstream", "completed"): "merged",
}
JUDGED = ("PASSED", "FAILED")


def overrides(moves: Iterable[Move]) -> tuple[ReportedOverride, ...]:
    """The overrides among moves."""
    return tuple(
        ReportedOverride(
            event_id=move["event_id"],
            workflow_id=move["context"]["workflow_id"],
            operator=str(move["operator"]),
            reason=str(move["reason"] or ""),
            bypassed=_texts(_object(move["metadata"].get("override")).get("passed_over")),
        )
        for move in moves
        if move["event_type"] == OVERRIDE
    )


def gates(moves: Iterable[Move], commands: Mapping[str, Sequence[str]]) -> tuple[ReportedGate, ...]:
    """The gates' results among moves; `commands`: instance -> what was run for it."""
    return tuple(
        ReportedGate(
            event_id=move["event_id"],
            workflow_id=move["context"]["workflow_id"],
            entity_id=move["entity_id"],
            command=tuple(found) if (found := commands.get(move["context"]["workflow_id"])) is not None else None,
            result=move["to_state"],
            exit_code=code if type(code := move["metadata"].get("exit_code")) is int else None,
            ran_on={key: str(value) for key, value in sorted(ran_on.items())}
            if (ran_on := _object(move["metadata"].get("ran_on")))
            else None,
        )
        for move in moves
        if move["entity_type"] == "test_gate" and move["to_state"] in JUDGED
    )


def commits(moves: Iterable[Move]) -> tuple[Commit, ...]:
    """The commits that moves record."""
    return tuple(
        Commit(
            event_id=move["event_id"],
            workflow_id=move["context"]["workflow_id"],
            entity_id=move["entity_id"],
            what=ENTERED[move["entity_type"], move["to_state"]],
            sha=sha,
            tree=tree if isinstance(tree := move["metadata"].get("tree"), str) else None,
        )
        for move in moves
        if (move["entity_type"], move["to_state"]) in ENTERED
        and isinstance(sha := move["metadata"].get("commit_sha"), str)
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
