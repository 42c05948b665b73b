"""What became of triggers, in words: the result of a Celery task in Flower (docs/celery.md)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from interlock.db.core.rounds import Due
from interlock.workflows.output.escaping import shown

OTHERS = 5  # triggers that a task names besides its own


class TriggerAnswer(NamedTuple):
    """One trigger's outcome: `about` is TYPE/NAME TRIGGER, `text` is as `applied: design → review`."""

    about: str
    text: str


def answer(request: Due, settled: Mapping[str, Any]) -> TriggerAnswer:
    """The outcome of a request, from the row that the engine writes of it."""
    about = f"{request['workflow_type']}/{request['entity_id']} {request['trigger']}"
    return TriggerAnswer(about, outcome({**settled, "attempts": request["attempts"] + 1}))


def outcome(row: Mapping[str, Any]) -> str:
    """What became of a request whose outcome is known, from its row: `status`, `result`, `error`, `attempts`."""
    found, status, attempts = row["result"] or {}, row["status"], row["attempts"]
    if status == "applied":
        return f"applied: {found['from']} → {found['to']}"
    spent = f" after {attempts} attempts" if status == "dead" and attempts > 1 else ""
    again = "to be tried again" if status in ("scheduled", "pending") else f"{status}{spent}"
    return f"{again}: {found.get('message') or row['error']}"


def told(answers: Mapping[str, TriggerAnswer], request_id: str, row: Mapping[str, Any] | None = None) -> str:
    """What a task did: first the outcome of the trigger that it was sent for, then of those that were refused.

    Args:
        answers: request id -> outcome, of all that it took.
        request_id: of the trigger that it was sent for. Another task may have taken it before.
        row: that trigger's, if it is not among them: it says what became of it.
    """
    others = [each for name, each in answers.items() if name != request_id]
    others.sort(key=_applied)
    said = [answers[request_id].text] if request_id in answers else []
    said += [outcome(row)] if row and (row["result"] or row["error"]) else []
    said += [f"{each.about} {each.text}" for each in others[:OTHERS]]
    if more := others[OTHERS:]:
        said.append(f"and {len(more)} more, {len(more) - sum(map(_applied, more))} of them not applied")
    return shown("; ".join(said) or "nothing to do: another task has it, or it is not due")


def _applied(answer: TriggerAnswer) -> bool:
    return answer.text.startswith("applied")
