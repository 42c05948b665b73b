"""What PostgreSQL's own rules refuse is rejected like a guard's refusal: at once, with the rule's own words."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from interlock.db.connection import transaction
from interlock.db.core import deprecations
from interlock.db.core.deprecations import DefinitionPart
from interlock.db.core.requests import partition_of
from interlock.db.operations import operators
from interlock.workers.client.client import Client
from interlock.workers.overrides.at_once import at_once
from interlock.workers.overrides.deprecations import announce
from interlock.workers.overrides.narrowing import narrow
from interlock.workers.overrides.operators import revoke
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from tests import parcels
from tests.driving import drain_all, outcome, state

pytestmark = pytest.mark.integration
ANN = OverrideOrder("ann", "a test")
WHY: dict[str, Any] = {"by": "ann", "data": {"reason": "a test"}}


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    made = make_runtime(definitions=("tests.parcels",))
    parcels.record(made, "ann", "bob")
    return made


def born(runtime: Runtime, type_: str, **terms: Any) -> UUID:
    with at_once(runtime) as acting:
        return acting.born(type_, f"{type_}-9", by="ann", terms=terms)


def of_partition(client: Client, project: str, other: UUID) -> UUID:
    """A story whose requests are applied in the same rounds as another instance's."""
    while partition_of((birth := client.birth("story", f"S-{other}", project=project)).id) != partition_of(other):
        pass
    client.create_many([birth])
    return birth.id


def test_a_move_that_postgresql_refuses_is_rejected_and_nothing_waits_for_it(
    client: Client, runtime: Runtime, project: str
) -> None:
    announce(runtime, DefinitionPart("parcel", "1.0.0"), ANN)
    revoke(runtime, "bob", by="ann", reason="a test")
    with transaction(runtime.database) as connection:
        (row,), (grant,) = deprecations.listed(connection), operators.grants(connection)
    removal = row["deprecation_id"]
    client.fire(removal, "propose_removal", **WHY)
    narrow(runtime, "story", "block", ["operator"], ANN)
    terms = {"type": "story", "trigger": "block", "to": ["machinery"]}
    with at_once(runtime) as acting:
        again = acting.born("narrowing", "again", by="ann", terms=terms, project=runtime.settings.project)
    refused = {
        "another operator must approve it than who proposed it": (removal, "approve_removal"),
        "it is the only grant without an end": (grant["grant_id"], "revoke"),
        "it would have ended": (born(runtime, "operator_grant", name="eve", until="2020-01-01T00:00:00Z"), "grant"),
        "it is deprecated already": (
            born(runtime, "deprecation", type="parcel", version="1.0.0", kind="version"),
            "announce",
        ),
        "block of story is narrowed already": (again, "enforce"),
    }
    receipts = {why: client.fire(subject, trigger, **WHY) for why, (subject, trigger) in refused.items()}
    behind = client.fire(removal, "withdraw_removal", **WHY)
    beside = [of_partition(client, project, subject) for subject, _ in refused.values()]
    for story in beside:
        client.fire(story, "design_complete", by="agent")
    drain_all(runtime)
    for why, receipt in receipts.items():
        settled = outcome(client, receipt.request_id)
        assert (settled["status"], settled["attempts"], settled["error"]) == ("rejected", 0, None), why
        assert settled["result"]["code"] == "judge"
        assert why in settled["result"]["message"]
        assert receipt.trigger in settled["result"]["legal"]
    assert outcome(client, behind.request_id)["status"] == "applied"
    assert [state(client, story) for story in beside] == ["design"] * 5
    assert [client.show(subject)["error"] for subject, _ in refused.values()] == [None] * 5
