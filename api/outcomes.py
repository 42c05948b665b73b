"""Answers to fired triggers: what was applied, what waits, and what the machine refuses, with what is missing."""

from typing import Any

from interlock.api.models import TriggerReceipt
from interlock.api.problems import ILLEGAL, KINDS, JsonAnswer, ProblemKind, Responses, answer
from interlock.workers.client.receipts import Receipt, VersionConflict
from interlock.workflows.outcomes import VERSION_CONFLICT

FIELDS = TriggerReceipt.model_fields
ENDED = ProblemKind(409, "dead", "The trigger's attempts are used up")
ACCEPTED: Responses = {
    202: {"model": TriggerReceipt, "description": "Accepted; not applied yet, or held for an approval"}
}
REASONS = ("code", "state", "version", "if_version", "legal", "missing", "wrong")


def shown(receipt: Receipt) -> dict[str, Any]:
    """A receipt as the API gives it."""
    return {name: getattr(receipt, name) for name in FIELDS}


def told(receipt: Receipt) -> JsonAnswer:
    """The answer to one fired trigger: 200 applied, 202 not yet or held for an approval, 409 refused."""
    match receipt.status:
        case "applied":
            return JsonAnswer(shown(receipt))
        case "rejected" | "superseded" | "dead":
            return _refused(receipt)
    return JsonAnswer(shown(receipt), 202)


def refusal(receipt: Receipt) -> tuple[ProblemKind, str, dict[str, Any]]:
    """Of a trigger that was not applied and will not be: the kind of problem, why, and what else is known of it."""
    result = receipt.result or {}
    kind = ENDED if receipt.status == "dead" else ILLEGAL
    if result.get("code") == VERSION_CONFLICT:
        kind = KINDS[VersionConflict]
    reasons = {name: result[name] for name in REASONS if name in result}
    return kind, str(result.get("message") or receipt.error or receipt.status), reasons


def _refused(receipt: Receipt) -> JsonAnswer:
    kind, detail, reasons = refusal(receipt)
    return answer(kind, detail, **reasons, request_id=receipt.request_id, receipt=shown(receipt))
