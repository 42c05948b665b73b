"""What gives power against a plain model: grants, removals and narrowings, tried at random by operators and others."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core.deprecations import DefinitionPart
from interlock.workers.client.client import Client
from interlock.workers.overrides import deprecations, narrowing, operators
from interlock.workers.overrides.at_once import CannotMove
from interlock.workers.overrides.deprecations import CannotDeprecate
from interlock.workers.overrides.operators import LastOperator
from interlock.workers.overrides.transaction import GOVERNANCE, NotAnOperator, OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, NotYours
from tests import parcels
from tests.driving import applied, drain_all, outcome
from tests.parcels import born
from tests.property.stateful import run_stateful
from tests.rights import end_at
from tests.tampering import unprotected

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
FIRST, WHY = "ann", "as drawn"
LIMIT, OF_ONE = 20, 10  # refusals of a login in a project and hour that become events, and of one name (REFUSAL-2)
people = st.sampled_from((FIRST, FIRST, "bob", "bob", "cyd"))
versions = st.sampled_from(("1.0.0", "1.1.0"))
triggers = st.sampled_from(("block", "design_complete"))
REFUSED = """
SELECT i.project, count(*) FROM trigger_requests r JOIN workflow_instances i ON i.id = r.workflow_id
 WHERE r.trigger = 'refuse' GROUP BY 1"""
ALONE = """
SELECT count(*) FROM workflow_transitions p JOIN workflow_transitions a USING (workflow_id)
 WHERE p.trigger = 'propose_removal' AND a.trigger = 'approve_removal' AND p.triggered_by = a.triggered_by
   AND NOT EXISTS (SELECT FROM workflow_transitions w WHERE w.workflow_id = p.workflow_id AND w.seq > p.seq
                                                        AND w.trigger = 'withdraw_removal')"""
EMPTIED = ("operators", "deprecation_uses", "deprecations", "narrowings", "refusal_counts", "effects",
           "trigger_requests", "workflow_transitions", "workflow_instances")  # fmt: skip


@dataclass
class Grant:
    name: str
    ends: bool
    state: str = "active"
    over: bool = False

    @property
    def in_force(self) -> bool:
        return self.state == "active" and not self.over


@dataclass
class Removal:
    due: bool
    state: str = "announced"
    proposed_by: str = ""


@dataclass
class Model:
    """What the specification says (docs/spec/governance.md, narrowing.md, refusals.md), in plain words of Python."""

    grants: list[Grant] = field(default_factory=list)
    removals: dict[str, Removal] = field(default_factory=dict)
    narrowed: dict[str, list[str]] = field(default_factory=dict)
    living: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)  # that became events, by project and name

    def recorded(self) -> dict[str, int]:
        """How many refusals became events, by project."""
        found: Counter[str] = Counter()
        for (project, _), number in self.refused.items():
            found[project] += number
        return dict(found)

    def refuse(self, project: str, who: str) -> None:
        if self.refused[project, who] < OF_ONE and self.recorded().get(project, 0) < LIMIT:
            self.refused[project, who] += 1

    def operators(self) -> set[str]:
        return {each.name for each in self.grants if each.in_force}

    def only(self, grant: Grant) -> bool:
        """Whether it is the only grant without an end."""
        return not grant.ends and not any(each.in_force and not each.ends and each is not grant for each in self.grants)

    def removable(self, version: str) -> bool:
        found = self.removals.get(version)
        return bool(found and found.state != "removed" and found.due and not self.living[version])


class Governance(RuleBasedStateMachine):
    """Every step is taken by Interlock and by the model; afterwards both say the same."""

    def __init__(self, runtime: Runtime, dba: Dba, seen: Counter[str]) -> None:
        super().__init__()
        self.runtime, self.dba, self.client, self.model, self.seen = runtime, dba, Client(runtime), Model(), seen
        self.numbers = count()
        self.home, self.project = GOVERNANCE, runtime.settings.project

    @initialize()
    def anew(self) -> None:
        with unprotected(self.dba, *EMPTIED):
            for table in EMPTIED:
                self.dba.execute(f"DELETE FROM {table}")  # type: ignore[call-overload]
        vars(self.runtime).pop("applier", None)  # it keeps deprecations in mind for ten seconds
        self.grant(FIRST, FIRST, ends=False)
        self.grant(FIRST, "bob", ends=True)
        self.stories = self.client.create("story", "S-1", project=self.project)["id"]
        self.alive: dict[str, list[UUID]] = {"1.0.0": [], "1.1.0": []}

    @contextmanager
    def expecting(self, error: type[Exception] | None) -> Iterator[None]:
        self.seen[error.__name__ if error else "done"] += 1
        if error is None:
            yield
            return
        with pytest.raises(error) as raised:
            yield
        assert raised.type is error, raised.value

    def by(self, who: str, otherwise: type[Exception] | None, project: str = "") -> type[Exception] | None:
        """What to expect if somebody does what only operators may; whoever is none is refused first."""
        if who in self.model.operators():
            return otherwise
        self.model.refuse(project or self.home, who)
        return NotAnOperator

    # Operators

    @rule(who=people, name=people, ends=st.booleans())
    def grant(self, who: str, name: str, ends: bool) -> None:
        known, nobody = name in self.model.operators(), not self.model.operators()
        error = None if nobody else self.by(who, None)
        until = datetime.now(UTC) + timedelta(days=1) if ends else None
        with self.expecting(error):
            made = operators.grant(self.runtime, [name], by=who, reason=WHY, until=until)
            assert made == ([] if known else [name])
            if not known:
                self.model.grants.append(Grant(name, ends))

    @rule(who=people, name=people)
    def revoke(self, who: str, name: str) -> None:
        current = [each for each in self.model.grants if each.in_force and each.name == name]
        error = BadInput if not current else LastOperator if self.model.only(current[0]) else None
        with self.expecting(self.by(who, error)):
            operators.revoke(self.runtime, name, by=who, reason=WHY)
            current[0].state = "revoked"

    @rule(name=people)
    def a_grant_ends(self, name: str) -> None:
        """Its `until` comes; the sweep tells of it later."""
        for each in self.model.grants:
            if each.in_force and each.ends and each.name == name:
                end_at(self.dba, "now() - interval '1 s'", f"state = 'active' AND until > now() AND name = '{name}'")
                each.over = True

    @rule()
    def the_sweep_looks(self) -> None:
        self.dba.execute(
            "UPDATE trigger_requests r SET not_before = now() FROM operators o"
            " WHERE o.grant_id = r.workflow_id AND o.until <= now() AND r.status = 'scheduled'"
        )
        with transaction(self.runtime.database) as connection:
            requests.wake(connection, limit=100)
        drain_all(self.runtime)
        for each in self.model.grants:
            if each.over and each.state == "active":
                each.state = "lapsed"

    # Removals

    @rule(who=people, version=versions, soon=st.booleans())
    def announce(self, who: str, version: str, soon: bool) -> None:
        error = CannotMove if soon and self.model.living[version] else None
        error = CannotDeprecate if version in self.model.removals else error
        order, after = OverrideOrder(who, WHY), datetime.now(UTC) if soon else None
        with self.expecting(self.by(who, error)):
            deprecations.announce(self.runtime, DefinitionPart("parcel", version), order, remove_after=after)
            self.model.removals[version] = Removal(due=soon)

    @rule(who=people, version=versions)
    def undo(self, who: str, version: str) -> None:
        with self.expecting(self.by(who, self.where(version, "announced"))):
            deprecations.undo(self.runtime, DefinitionPart("parcel", version), OverrideOrder(who, WHY))
            del self.model.removals[version]

    @rule(who=people, version=versions)
    def propose_removal(self, who: str, version: str) -> None:
        error = self.where(version, "announced") if self.model.removable(version) else CannotDeprecate
        with self.expecting(self.by(who, error)):
            deprecations.propose_removal(self.runtime, "parcel", version, OverrideOrder(who, WHY))
            self.model.removals[version].state, self.model.removals[version].proposed_by = "removal_proposed", who

    @rule(who=people, version=versions)
    def withdraw_removal(self, who: str, version: str) -> None:
        with self.expecting(self.by(who, self.where(version, "removal_proposed"))):
            deprecations.withdraw_removal(self.runtime, "parcel", version, OverrideOrder(who, WHY))
            self.model.removals[version].state, self.model.removals[version].proposed_by = "announced", ""

    @rule(who=people, version=versions)
    def approve_removal(self, who: str, version: str) -> None:
        error = (
            self.where(version, "removal_proposed", another=who) if self.model.removable(version) else CannotDeprecate
        )
        with self.expecting(self.by(who, error)):
            deprecations.approve_removal(self.runtime, "parcel", version, OverrideOrder(who, WHY))
            self.model.removals[version].state = "removed"

    def where(self, version: str, state: str, another: str = "") -> type[Exception] | None:
        found = self.model.removals.get(version)
        if found is None:
            return CannotDeprecate
        return CannotMove if found.state != state or found.proposed_by == another != "" else None

    @rule(proposer=people, approver=people, version=versions)
    def remove(self, proposer: str, approver: str, version: str) -> None:
        """All that a removal takes, or as far as it gets."""
        self.grant(FIRST, approver, ends=False)
        while self.alive[version]:
            self.one_ends(version)
        self.announce(proposer, version, soon=True)
        self.propose_removal(proposer, version)
        self.approve_removal(approver, version)

    @rule(version=versions)
    def one_is_born(self, version: str) -> None:
        removed = version in self.model.removals and self.model.removals[version].state == "removed"
        with self.expecting(BadInput if removed else None):
            made = born(self.runtime, "parcel", version, f"P-{next(self.numbers)}", self.project)
            self.alive[version].append(made)
            self.model.living[version] += 1

    @rule(version=versions)
    def one_ends(self, version: str) -> None:
        if self.alive[version]:
            applied(self.client, self.alive[version].pop(), "send", "deliver")
            self.model.living[version] -= 1

    # Narrowings

    @rule(who=people, trigger=triggers, to=st.sampled_from((["operator"], ["machinery"], ["machinery", "operator"])))
    def narrow(self, who: str, trigger: str, to: list[str]) -> None:
        error = BadInput if trigger in self.model.narrowed else None
        with self.expecting(self.by(who, error, self.project)):
            narrowing.narrow(self.runtime, "story", trigger, to, OverrideOrder(who, WHY))
            self.model.narrowed[trigger] = to

    @rule(who=people, trigger=triggers)
    def widen_again(self, who: str, trigger: str) -> None:
        error = None if trigger in self.model.narrowed else narrowing.NotNarrowed
        with self.expecting(self.by(who, error, self.project)):
            narrowing.widen_again(self.runtime, "story", trigger, OverrideOrder(who, WHY))
            del self.model.narrowed[trigger]

    @rule(who=people, trigger=triggers)
    def fire(self, who: str, trigger: str) -> None:
        left = self.model.narrowed.get(trigger)
        if refused := left is not None and ("operator" not in left or who not in self.model.operators()):
            self.model.refuse(self.project, who)
        with self.expecting(NotYours if refused else None):
            self.client.fire(self.stories, trigger, by=who, data={"reason": WHY})

    # Past the commands, by what everybody has

    @rule(who=people, which=st.integers(0, 9))
    def fire_a_revocation(self, who: str, which: int) -> None:
        grant = self.model.grants[which % len(self.model.grants)]
        (ids,) = zip(
            *self.dba.execute("SELECT grant_id FROM operators ORDER BY since, grant_id").fetchall(), strict=True
        )
        if self._fired(who, ids[which % len(ids)], "revoke", grant.state == "active" and not self.model.only(grant)):
            grant.state = "revoked"

    @rule(who=people, version=versions)
    def fire_an_approval(self, who: str, version: str) -> None:
        standing = self.dba.execute(
            "SELECT deprecation_id FROM deprecations WHERE state <> 'undone' AND version = %s", (version,)
        ).fetchall()
        for (deprecation,) in standing:
            legal = self.model.removable(version) and self.where(version, "removal_proposed", another=who) is None
            if self._fired(who, deprecation, "approve_removal", legal):
                self.model.removals[version].state = "removed"

    def teardown(self) -> None:
        assert self.dba.execute(ALONE).fetchone() == (0,), "somebody removed a version alone"

    def _fired(self, who: str, instance: UUID, trigger: str, legal: bool) -> bool:
        """Fire what only operators may, and apply it; whether it moved."""
        if who not in self.model.operators():
            self.model.refuse(self.home, who)
            with self.expecting(NotYours):
                self.client.fire(instance, trigger, by=who, data={"reason": WHY})
            return False
        receipt = self.client.fire(instance, trigger, by=who, data={"reason": WHY})
        drain_all(self.runtime)
        settled = outcome(self.client, receipt.request_id)
        assert (settled["status"], settled["attempts"]) == ("applied" if legal else "rejected", 0), settled
        self.seen[(settled["result"] or {}).get("code", trigger)] += 1
        return legal

    @invariant()
    def they_say_the_same(self) -> None:
        if not self.model.grants:
            return
        model = self.model
        assert self.dba.execute("SELECT * FROM interlock.rows_unlike_history()").fetchall() == []
        told = self.dba.execute("SELECT name, state, until <= now() IS TRUE FROM operators ORDER BY since, grant_id")
        assert told.fetchall() == [(each.name, each.state, each.over) for each in model.grants]
        assert model.operators(), "there was an operator, and now there is none"
        removals = self.dba.execute(
            "SELECT version, state, removal_proposed_by, removed_by = removal_proposed_by IS TRUE"
            "  FROM deprecations WHERE state <> 'undone' ORDER BY version"
        )
        assert removals.fetchall() == [
            (version, each.state, each.proposed_by or None, False) for version, each in sorted(model.removals.items())
        ]
        narrowings = self.dba.execute("SELECT trigger, open_to FROM narrowings").fetchall()
        assert dict(narrowings) == model.narrowed
        recorded = dict(self.dba.execute(REFUSED).fetchall())
        assert recorded == model.recorded()


def test_governance_does_what_the_plain_model_says(make_runtime: Callable[..., Runtime], dba: Dba) -> None:
    runtime = make_runtime(definitions=("tests.parcels",))
    parcels.record(runtime)
    seen: Counter[str] = Counter()
    run_stateful(lambda: Governance(runtime, dba, seen), examples=10, steps=25, phases=[Phase.generate])
    assert seen["done"] > 0
    assert seen["NotAnOperator"] > 0
