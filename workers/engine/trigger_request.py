"""Checks the triggers that a caller fires, and the data that comes with them, and turns them into rows."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from uuid_utils.compat import uuid7

from interlock.workers.engine import worker_secrets
from interlock.workflows.errors import BadInput
from interlock.workflows.input import limits, names
from interlock.workflows.input.arguments import FreeModel, FreeText, record
from interlock.workflows.typed import OVERRIDES, WRITTEN

PROOF = re.compile(rf"claim:[1-9][0-9]{{0,17}}|secret:{worker_secrets.FORM.pattern}")  # what a caller can have
RESERVED = (*OVERRIDES, *WRITTEN)  # names that no caller's data may have
LONGEST = timedelta(days=36_525)
LAST_YEAR = 9998  # the trigger `request_is_sound` takes no later one
MOST_SPENT = {"tokens": 10**15 - 1, "usd": 10**9}  # told at once; `interlock.is_spent` says the same
HIGHEST_VERSION = 2**31 - 1  # PostgreSQL's integer


@record
@dataclass(frozen=True, slots=True)
class Firing:
    """A trigger to fire.

    Attributes:
        ref: the instance: its UUID; or, in the client's project, `TYPE/ENTITY_ID` or an entity id of one instance.
        trigger: one of its definition's triggers.
        by: who fires it: an agent, a user or `system`.
        request_id: the idempotency key: firing the same request again has no effect. Default: a new UUIDv7. It may
            not begin with `interlock:`.
        data: kept in the event's metadata: a JSON object, or an instance of the model that the definition names for it.
        after: do not apply before this instant, or before this much time has passed since acceptance.
        proof: of a right that not everyone has (AUTHORITY-7): `claim:TOKEN`, by who holds the task; `secret:SECRET`, by
            a worker itself, under its own name. Default: none is needed, or the caller's name is enough, as an
            operator's is.
        if_version: apply it only if the instance is at this version then: `version` of `Client.show`, or `seq` in the
            result of the trigger before. At another version it is rejected, which `wait` raises as `VersionConflict`
            (EVENT-16). Default: at any.
    """

    ref: str | UUID
    trigger: str
    by: FreeText
    request_id: FreeText = ""
    data: FreeModel = field(default_factory=dict)
    after: datetime | timedelta | None = None
    proof: FreeText = ""
    if_version: int | None = None


def row(firing: Firing, workflow_id: UUID, *, limit_bytes: int) -> dict[str, Any]:
    """The `trigger_requests` row of a firing. Its fingerprint distinguishes a repetition from another request.

    Raises:
        BadInput: a name, the reason or the version is not valid, or the data is not a JSON object of acceptable size.
    """
    request_id = firing.request_id or str(uuid7())
    metadata = checked("data", firing.data, limit_bytes)
    check_names("data", metadata)
    check_spent(metadata)
    if isinstance(reason := metadata.get("reason"), str) and reason:
        names.words("data.reason", reason)
    body = {
        "workflow_id": str(workflow_id),
        "trigger": names.name("trigger", firing.trigger),
        "triggered_by": names.name("by", firing.by),
        "metadata": metadata,
        **_time(firing.after),
        **_version(firing.if_version),
    }
    try:
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    except TypeError as error:  # keys of different types cannot be sorted
        raise BadInput(f"data has keys that are not text: {error}") from error
    return body | {
        "request_id": names.request_id(request_id),
        "fingerprint": sha256(canonical.encode()).hexdigest(),
        "origin": "agent",
        **_right(firing.proof, firing.after),
    }


def checked(what: str, value: Mapping[str, Any] | BaseModel, limit_bytes: int) -> dict[str, Any]:
    """`value` as a plain dict that PostgreSQL can store as jsonb.

    Raises:
        BadInput: it is not a JSON object, or exceeds `workflows.input.limits`.
    """
    if not isinstance(value, Mapping):
        raise BadInput(f"{what} must be a JSON object, not {type(value).__name__}")
    if not value:
        return {}
    limits.checked(what, value, limit_bytes)
    return dict(value)


def check_names(what: str, data: Mapping[str, Any]) -> None:
    """Raise `BadInput` if a caller's data, called `what`, has a name that only overrides or Interlock itself give."""
    if reserved := [key for key in OVERRIDES if key in data]:
        raise BadInput(
            f"{what}.{reserved[0]} is reserved for overrides (`interlock override --help`); use another name"
        )
    if written := [key for key in WRITTEN if key in data]:
        raise BadInput(f"{what}.{written[0]} is what Interlock itself writes into history; use another name")


def check_spent(data: Mapping[str, Any]) -> None:
    """Raise `BadInput` if data says under `spent` anything but an amount of tokens, of money or of both (BRAKE-4)."""
    if "spent" not in data:
        return
    spent = data["spent"]
    if not isinstance(spent, Mapping) or not spent or spent.keys() - {"tokens", "usd"}:
        raise BadInput('data.spent is what was spent, such as {"tokens": 1200, "usd": 0.4}')
    for name, value in spent.items():
        number = isinstance(value, int if name == "tokens" else int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= MOST_SPENT[name]:
            whole = "a whole number" if name == "tokens" else "a number"
            raise BadInput(f"data.spent.{name} must be {whole} from 0 to {MOST_SPENT[name]:,}")


def _right(proof: str, after: datetime | timedelta | None) -> dict[str, Any]:
    if not proof:
        return {}
    if after is not None:
        raise BadInput("a proof is for now: the claim may have ended by the time that `after` names")
    if not PROOF.fullmatch(proof):
        raise BadInput(
            "proof must be claim:TOKEN, with the token that `interlock worker claim` gave, or secret:SECRET, with the "
            "one that a worker got as it registered"
        )
    return {"authority": "holder", "proof": proof}


def _version(wanted: int | None) -> dict[str, Any]:
    if wanted is None:
        return {}
    if not 0 <= wanted <= HIGHEST_VERSION:
        raise BadInput(
            f"if_version must be from 0 to {HIGHEST_VERSION:,}; got {wanted}. `interlock show REF` says the one"
            " that it has"
        )
    return {"bound_version": wanted}


def _time(after: datetime | timedelta | None) -> dict[str, Any]:
    if after is None:
        return {}
    if isinstance(after, timedelta):
        if after > LONGEST:
            raise BadInput(f"{after} is more than a century away")
        return {"delay_seconds": after.total_seconds()}
    if after.tzinfo is None:
        raise BadInput(f"{after.isoformat()} has no time zone: give it a tzinfo, such as datetime.UTC")
    try:
        at = after.astimezone(UTC)
    except OverflowError as error:
        raise BadInput(f"{after.isoformat()} is beyond the largest date: {error}") from error
    if at.year > LAST_YEAR:
        raise BadInput(f"{after.isoformat()} is after the year {LAST_YEAR}, the last that PostgreSQL takes here")
    return {"not_before": at.isoformat()}
