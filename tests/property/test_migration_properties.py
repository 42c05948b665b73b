"""Any two versions of any machine, any way through both: the chain is whole, each stands in a state of its version."""

from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from interlock.db.audit import verify
from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.workers.client.client import Client
from interlock.workers.definitions.instance_migration import Migration, migrate
from interlock.workers.engine.applier import Applier
from interlock.workers.engine.creation import Birth, deliver
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import Catalogue, catalogue
from interlock.workflows.definition import Deadline, Definition, T
from interlock.workflows.errors import BadInput
from tests.driving import drain_all
from tests.rights import operate

pytestmark = pytest.mark.integration
STATES = ("a", "b", "c", "d", "e")
TRIGGERS = ("t0", "t1", "t2", "t3", "t4", "t5", "t6")
BY = "ann"


@st.composite
def machines(draw: Any, type_: str, version: str) -> Definition:
    """A machine that passes the check: a line through its states, some moves more, deadlines here and there."""
    states = draw(st.permutations(STATES))[: draw(st.integers(2, len(STATES)))]
    ends = frozenset(states[-draw(st.integers(1, len(states) - 1)) :])
    going = [state for state in states if state not in ends]
    line = list(pairwise(states))
    free = list(draw(st.permutations(TRIGGERS)))
    # Each state is reached from the one before it, or from the last that goes on: nothing leaves those that end.
    moves = [T(free.pop(), source if source in going else going[-1], dest) for source, dest in line]
    for source in draw(st.lists(st.sampled_from(going), max_size=len(free))):
        moves.append(T(free.pop(), source, draw(st.sampled_from(states))))
    timed = {
        state: Deadline(draw(st.integers(60, 6000)), next(move.trigger for move in moves if state in move.sources))
        for state in draw(st.sets(st.sampled_from(going)))
    }
    return Definition(
        type=type_,
        version=version,
        summary="Any.",
        states=tuple(states),
        initial=states[0],
        terminal=ends,
        transitions=tuple(moves),
        deadlines=MappingProxyType(timed),
    )


@dataclass
class Expected:
    """One instance, as it must be."""

    id: UUID
    under: Definition
    state: str
    moves: int = 0

    def fire(self, trigger: str) -> None:
        if found := self.under.moves.get((trigger, self.state)):
            self.state, self.moves = found[0].dest, self.moves + 1

    def migrate(self, new: Definition, renamed: dict[str, str]) -> bool:
        """Whether it moves; where to."""
        dest = self.state if self.state in new.states else renamed.get(self.state)
        if self.state in self.under.terminal or dest is None or dest in new.terminal:
            return False
        self.under, self.state, self.moves = new, dest, self.moves + 1
        return True


def under(runtime: Runtime, *known: Definition) -> None:
    """Let this runtime know some definitions more, and the database too."""
    both = Catalogue([*catalogue(), *known])
    vars(runtime).update(catalogue=both, applier=Applier(runtime.database, both, runtime.retry_policy))
    with transaction(runtime.owned) as connection:
        definitions.record(connection, Catalogue(known))


def test_any_way_through_two_versions_leaves_a_whole_chain(client: Client, runtime: Runtime) -> None:
    operate(runtime, BY)

    @given(data=st.data())
    @hypothesis_settings(max_examples=12)
    def go(data: Any) -> None:
        type_ = f"m{uuid4().hex[:12]}"
        versions = [data.draw(machines(type_, version), label=version) for version in ("1.0.0", "2.0.0")]
        under(runtime, *versions)
        born = [Birth(data.draw(st.sampled_from(versions)), f"I-{n}", uuid7(), "test", {}) for n in range(3)]
        with transaction(runtime.database) as connection:
            deliver(connection, born)
        there = [Expected(each.id, each.definition, each.definition.initial) for each in born]
        for _ in range(data.draw(st.integers(1, 12), label="steps")):
            if data.draw(st.booleans()):
                one, trigger = data.draw(st.sampled_from(there)), data.draw(st.sampled_from(TRIGGERS))
                if trigger in one.under.triggers:
                    client.fire(one.id, trigger, by="test")
                    drain_all(runtime)
                    one.fire(trigger)
            else:
                cross(runtime, data, versions, there)
            check(client, there)

    def cross(runtime: Runtime, data: Any, versions: list[Definition], there: list[Expected]) -> None:
        old, new = data.draw(st.permutations(versions), label="way")
        renamed = data.draw(st.dictionaries(st.sampled_from(STATES), st.sampled_from(STATES), max_size=3))
        dry_run = data.draw(st.booleans(), label="dry run")
        order = Migration(old.type, old.version, new.version, BY, "so", renamed=renamed, dry_run=dry_run)
        try:
            done = migrate(runtime.database, runtime.catalogue, order)
        except BadInput:
            assert any(s not in old.states or s in new.states or d not in new.states for s, d in renamed.items())
            return
        living = [each for each in there if each.under is old and each.state not in old.terminal]
        if dry_run:
            living = [Expected(each.id, each.under, each.state) for each in living]
        moved = {each.id for each in living if each.migrate(new, renamed)}
        assert (done.found, done.moved) == (len(living), len(moved))
        assert {each.id for each in done.stays} == {each.id for each in living} - moved

    def check(client: Client, there: list[Expected]) -> None:
        for each in there:
            found = client.show(each.id)
            assert (found["current_state"], found["definition_version"], found["version"]) == (
                each.state,
                each.under.version,
                each.moves,
            )
            assert found["current_state"] in each.under.states

    go()
    verdict = verify.verify(runtime.database)
    assert verdict.ok, verdict.problems
