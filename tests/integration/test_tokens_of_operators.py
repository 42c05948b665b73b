"""What an operator does with a token says so: each event and each new instance names the token in its proof."""

from collections.abc import Callable
from typing import Any

import pytest

from interlock.db.core.deprecations import DefinitionPart
from interlock.workers.access.tokens import find
from interlock.workers.client.client import Client
from interlock.workers.overrides import brakes, budgets, deprecations, limits, operators, phases, subscriptions
from interlock.workers.overrides.budgets import Budgeted
from interlock.workers.overrides.limits import LimitedName
from interlock.workers.overrides.redrive import redrive
from interlock.workers.overrides.subscriptions import WantedEvents
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import NotYours
from tests.calling import token
from tests.driving import applied, drain_failing

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = "psycopg.Connection[Any]"

MADE = """
SELECT i.workflow_type || ' ' || t.trigger, t.proof FROM interlock.workflow_transitions t
  JOIN interlock.workflow_instances i ON i.id = t.workflow_id
 WHERE t.triggered_by = 'ann' AND t.position > %s ORDER BY t.position
"""
BORN = "SELECT workflow_type, born_proof FROM interlock.workflow_instances WHERE created_by = 'ann' AND created_at > %s"


def act(runtime: Runtime, order: OverrideOrder, dead: str) -> None:
    """One of each act that gives or takes power; `dead` is a request to redrive."""
    redrive(runtime, [dead], order)
    who = {"by": order.by, "reason": order.reason, "principal": order.principal}
    made = brakes.put_brake(runtime, "actor", "agent-7", order)
    brakes.release_brake(runtime, made["entity_id"], order)
    budgets.set_budget(runtime, Budgeted("actor", "agent-7"), "triggers", order, most=5)
    budgets.remove_budget(runtime, Budgeted("actor", "agent-7"), "triggers", order)
    limits.set_limit(runtime, LimitedName("key", "eu"), order, at_once_most=1)
    phases.freeze(runtime, "night", order)
    wanted = WantedEvents()
    subscriptions.subscribe(runtime, "chat", "https://chat.example/", order, secrets=["env:X"], wanted=wanted)
    subscriptions.change_subscription(runtime, "chat", "pause", order)
    deprecations.announce(runtime, DefinitionPart("story", "1.0.0", "state", "design"), order)
    operators.grant(runtime, ["eve"], **who)  # type: ignore[arg-type]
    operators.revoke(runtime, "eve", **who)  # type: ignore[arg-type]


def test_every_act_of_an_operator_says_by_which_token(
    client: Client, dba: Dba, make_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = client.runtime
    applied(client, client.create("phase", "night")["id"], "open")
    client.fire(client.create("story", "S-1")["id"], "block", by="bot", request_id="dead")
    drain_failing(make_runtime(max_attempts=1), monkeypatch)
    principal = find(runtime, token(runtime, "ann", "admin", None))
    assert principal
    (position, now) = dba.execute("SELECT max(position), now() FROM interlock.workflow_transitions").fetchone() or ()
    act(runtime, OverrideOrder("ann", "a test", principal=principal), "dead")
    moves = dba.execute(MADE, (position,)).fetchall()
    said = f" token:{principal.token_id}"
    assert {move: proof.endswith(said) and proof.startswith("grant:") for move, proof in moves} == dict.fromkeys(
        (
            "brake release", "budget enforce", "budget remove", "limit enforce", "phase freeze",
            "subscription activate", "subscription pause", "deprecation announce", "operator_grant grant",
            "operator_grant revoke", "redrive redrive",
        ),
        True,
    )  # fmt: skip
    births = dict(dba.execute(BORN, (now,)).fetchall())
    assert set(births.values()) == {said.strip()}
    assert set(births) == {"brake", "budget", "limit", "subscription", "deprecation", "operator_grant", "redrive"}


@pytest.mark.parametrize("role", ["operator", "admin"])
def test_what_gives_power_everywhere_needs_an_admins_token_for_all_projects(client: Client, role: Any) -> None:
    runtime = client.runtime
    principal = find(runtime, token(runtime, "ann", role, ("default",)))
    with pytest.raises(NotYours):
        operators.grant(runtime, ["eve"], by="ann", reason="a test", principal=principal)
    with pytest.raises(NotYours):
        deprecations.announce(
            runtime,
            DefinitionPart("story", "1.0.0", "state", "design"),
            OverrideOrder("ann", "a test", principal=principal),
        )
