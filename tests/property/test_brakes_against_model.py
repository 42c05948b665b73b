"""Budgets and brakes in PostgreSQL against a plain, single-threaded class: what is accepted, held and let go."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import brakes
from interlock.workers.client.client import Client
from interlock.workers.overrides.brakes import put_brake, release_brake
from interlock.workers.overrides.budgets import Budgeted, remove_budget, set_budget
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from tests.driving import drain_all
from tests.property.stateful import run_stateful

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
WHY = OverrideOrder("ann", "x")
ACTORS = ("a1", "a2", "b")
WHOSE = (("actor", "a1"), ("actor", "a*"), ("actor", "*"), ("project", ""))
PERIOD = 10_000.0
PASS = "UPDATE budget_uses SET slot = -slot; UPDATE budget_uses SET slot = -slot - 51"  # never two in one slot


@dataclass
class PlainBudget:
    """What the specification says of one budget (BRAKE-1, BRAKE-2, BRAKE-7), in plain words of Python."""

    kind: str
    name: str
    resource: str
    most: int
    used: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # name -> (age in steps, amount)

    def counts_as(self, actor: str) -> str | None:
        if self.kind == "project":
            return self.name
        begins = self.name.removesuffix("*")
        return actor if actor == self.name or (self.name.endswith("*") and actor.startswith(begins)) else None

    def is_used_up(self, name: str) -> bool:
        return sum(amount for age, amount in self.used.get(name, ()) if age < 2) >= self.most


@dataclass
class PlainBrake:
    kind: str
    name: str
    budget: PlainBudget | None

    def holds(self, actor: str) -> bool:
        return self.kind == "project" or self.name == actor


class BrakesAndModel(RuleBasedStateMachine):
    """Every trigger is fired at both; both take it or both hold it, and nothing that was held is lost or overtaken."""

    def __init__(self, runtime: Runtime, dba: "psycopg.Connection[Any]") -> None:
        super().__init__()
        self.runtime, self.dba = runtime, dba
        self.budgets: list[PlainBudget] = []
        self.brakes: list[PlainBrake] = []
        self.held: list[tuple[str, str]] = []  # request, actor
        self.going: list[str] = []
        self.settled: list[str] = []

    @initialize(
        terms=st.lists(
            st.tuples(st.sampled_from(WHOSE), st.sampled_from(("triggers", "tokens")), st.integers(1, 4)),
            min_size=1, max_size=3, unique_by=lambda each: each[:2],
        )
    )  # fmt: skip
    def budgeted(self, terms: list[tuple[tuple[str, str], str, int]]) -> None:
        self.project = f"p-{uuid7()}"
        self.client = Client(self.runtime, project=self.project)
        self.instance: UUID = self.client.create("story", "S-1")["id"]
        for (kind, name), resource, most in terms:
            set_budget(self.runtime, self.whose(kind, name), resource, WHY, most=most, per_seconds=PERIOD)
            self.budgets.append(PlainBudget(kind, name or self.project, resource, most))

    def whose(self, kind: Any, name: str) -> Budgeted:
        return Budgeted(kind, "" if kind == "project" else name, self.project)

    @rule(actor=st.sampled_from(ACTORS), tokens=st.integers(0, 2))
    def fires(self, actor: str, tokens: int) -> None:
        data = {"spent": {"tokens": tokens}} if tokens else {}
        receipt = self.client.fire(self.instance, "block", by=actor, data=data)
        held = any(each.holds(actor) for each in self.brakes)
        if not held:
            for each in self.counting(actor, "triggers"):
                held |= self.brake_if_used_up(each, actor)
        if held:
            self.held.append((receipt.request_id, actor))
        else:
            self.going.append(receipt.request_id)
            self.use(actor, "triggers", 1)
        if tokens:
            self.use(actor, "tokens", tokens)
            for each in self.counting(actor, "tokens"):
                self.brake_if_used_up(each, actor)
        assert receipt.status == ("waiting" if held else "pending")

    def counting(self, actor: str, resource: str) -> list[PlainBudget]:
        return [each for each in self.budgets if each.resource == resource and each.counts_as(actor) is not None]

    def use(self, actor: str, resource: str, amount: int) -> None:
        for each in self.counting(actor, resource):
            each.used.setdefault(str(each.counts_as(actor)), []).append((0, amount))

    def brake_if_used_up(self, each: PlainBudget, actor: str) -> bool:
        name = str(each.counts_as(actor))
        if not each.is_used_up(name):
            return False
        if not any(brake.budget is each and brake.name == name for brake in self.brakes):
            self.brakes.append(PlainBrake(each.kind, name, each))
        return True

    @rule(actor=st.sampled_from(ACTORS))
    def an_operator_brakes(self, actor: str) -> None:
        put_brake(self.runtime, "actor", actor, WHY, project=self.project)
        self.brakes.append(PlainBrake("actor", actor, None))

    @rule(which=st.integers(0, 9))
    def an_operator_releases(self, which: int) -> None:
        found = self.on()
        if not found:
            return
        gone = found[which % len(found)]
        release_brake(self.runtime, gone["entity_id"], WHY, project=self.project)
        resource = gone["context"].get("resource")
        brake = next(
            each
            for each in self.brakes
            if (each.kind, each.name) == (gone["kind"], gone["name"])
            and (each.budget and (each.budget.resource, each.budget.most))
            == (resource and (resource, gone["context"]["most"]))
        )
        self.brakes.remove(brake)
        if brake.budget:
            brake.budget.used.pop(brake.name, None)
        free = [each for each in self.held if not any(on.holds(each[1]) for on in self.brakes)]
        self.held = [each for each in self.held if each not in free]
        self.going += [request for request, _ in free]

    @rule(which=st.integers(0, 2))
    def an_operator_removes_a_budget(self, which: int) -> None:
        if which < len(self.budgets):
            gone = self.budgets.pop(which)
            remove_budget(self.runtime, self.whose(gone.kind, gone.name), gone.resource, WHY)

    @rule()
    def time_passes(self) -> None:
        self.dba.execute(PASS)
        for each in self.budgets:
            each.used = {name: [(age + 1, amount) for age, amount in uses] for name, uses in each.used.items()}

    @rule()
    def workers_apply(self) -> None:
        drain_all(self.runtime)
        self.settled += sorted(self.going)  # UUIDv7: the order in which they were fired
        self.going = []

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "project"):
            return
        named = sorted((each["kind"], each["name"]) for each in self.on())
        assert named == sorted((each.kind, each.name) for each in self.brakes)
        found = self.dba.execute(
            "SELECT request_id, status FROM trigger_requests WHERE workflow_id = %s ORDER BY seq", (self.instance,)
        ).fetchall()
        assert {each for each, status in found if status == "waiting"} == {each for each, _ in self.held}
        assert {each for each, status in found if status == "pending"} == set(self.going)
        assert {each for each, _ in found} == {each for each, _ in self.held} | set(self.going) | set(self.settled)

    def on(self) -> Any:
        with transaction(self.runtime.database) as connection:
            return brakes.listed(connection, project=self.project)


def test_brake_7_every_trigger_is_taken_held_and_let_go_as_in_the_model(runtime: Runtime, dba: Any) -> None:
    run_stateful(lambda: BrakesAndModel(runtime, dba), examples=12, steps=25)
