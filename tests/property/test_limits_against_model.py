"""Limits in PostgreSQL against a plain, single-threaded class: what may start, one step after another."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.workers.client.client import Client
from interlock.workers.overrides.limits import LimitedName, set_limit
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from tests.property.stateful import run_stateful
from tests.tampering import unprotected

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
PERIOD, STEP = 100.0, 40.0  # no start is ever near the end of a period: whatever a test takes is far less
KEYS = ("a1", "a2", "b", None)
NAMES = (("key", "a1"), ("key", "a*"), ("key", "*"), ("type", "story"), ("project", ""))
INTEND = "INSERT INTO effects (id, workflow_id, version, name, limit_key) VALUES (%s, %s, 0, 'x', %s)"
PASS = "UPDATE limit_starts SET started_at = started_at - make_interval(secs => %s)"
HELD = "SELECT count(*) FROM effects WHERE status = 'leased'"


@dataclass
class PlainLimit:
    """What the specification says of one limit (LIMIT-3 to LIMIT-7), in plain words of Python."""

    kind: str
    name: str
    at_once: int | None
    starts: int | None
    began: dict[str, list[float]] = field(default_factory=dict)  # name -> how long ago each start was

    def counts_as(self, key: str | None) -> str | None:
        if self.kind != "key":
            return self.kind
        begins = self.name.removesuffix("*")
        matches = key == self.name or (self.name.endswith("*") and key is not None and key.startswith(begins))
        return key if matches else None

    def has_room(self, key: str | None, running: list[str | None]) -> bool:
        if (name := self.counts_as(key)) is None:
            return True
        held = sum(self.counts_as(each) == name for each in running)
        recent = sum(age < PERIOD for age in self.began.get(name, ()))
        return (self.at_once is None or held < self.at_once) and (self.starts is None or recent < self.starts)

    def note(self, key: str | None) -> None:
        if (name := self.counts_as(key)) is not None:
            self.began.setdefault(name, []).append(0.0)


class LimitsAndModel(RuleBasedStateMachine):
    """Every lease is asked of both; both give it or both refuse it."""

    def __init__(self, runtime: Runtime, dba: "psycopg.Connection[Any]") -> None:
        super().__init__()
        self.runtime, self.dba = runtime, dba

    @initialize(
        terms=st.lists(
            st.tuples(st.sampled_from(NAMES), st.none() | st.integers(1, 3), st.none() | st.integers(1, 4)).filter(
                lambda each: each[1:] != (None, None)
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda each: each[0],
        )
    )
    def limited(self, terms: list[tuple[tuple[str, str], int | None, int | None]]) -> None:
        project = f"p-{uuid7()}"
        self.instance: UUID = Client(self.runtime, project=project).create("story", "S-1")["id"]
        self.limits = [PlainLimit(*named, at_once, starts) for named, at_once, starts in terms]
        for (kind, name), at_once, starts in terms:
            counted = LimitedName(kind, name, project)  # type: ignore[arg-type]
            per = None if starts is None else PERIOD
            set_limit(
                self.runtime, counted, OverrideOrder("ann", "x"), at_once_most=at_once, starts=starts, per_seconds=per
            )
        self.running: list[tuple[str | None, Any]] = []

    @rule(key=st.sampled_from(KEYS))
    def starts(self, key: str | None) -> None:
        effect = uuid7()
        self.dba.execute(INTEND, (effect, self.instance, key))
        with transaction(self.runtime.database) as connection:
            claimed = effects.claim(connection, effect, holder="somebody", lease_seconds=600)
        room = all(each.has_room(key, [held for held, _ in self.running]) for each in self.limits)
        assert (claimed is not None) == room
        if claimed is not None:
            self.running.append((key, claimed))
            for each in self.limits:
                each.note(key)

    @rule(which=st.integers(0, 9))
    def ends(self, which: int) -> None:
        if self.running:
            _, claimed = self.running.pop(which % len(self.running))
            with transaction(self.runtime.database) as connection:
                effects.finish(connection, claimed, status="done")

    @rule()
    def time_passes(self) -> None:
        self.dba.execute(PASS, (STEP,))
        for each in self.limits:
            each.began = {name: [age + STEP for age in ages] for name, ages in each.began.items()}

    @invariant()
    def what_is_woken_has_room(self) -> None:
        """The sweep finds what could start, and only that (LIMIT-8)."""
        waiting = "SELECT id, limit_key FROM effects WHERE status = 'pending' AND name = 'x'"
        keys = dict(self.dba.execute(waiting).fetchall())
        with transaction(self.runtime.database) as connection:
            woken = {keys[row["id"]] for row in effects.due(connection, limit=1_000) if row["id"] in keys}
        held = [each for each, _ in self.running] if keys else []
        assert woken == {key for key in keys.values() if all(each.has_room(key, held) for each in self.limits)}

    def teardown(self) -> None:
        self.dba.execute(
            "UPDATE effects SET status = 'done', lease_until = NULL, finished_at = now() WHERE finished_at IS NULL"
        )
        with unprotected(self.dba, "limits"):
            self.dba.execute("DELETE FROM effects; DELETE FROM limit_starts; DELETE FROM limits")


def test_limit_5_every_start_is_let_through_or_refused_as_in_the_model(runtime: Runtime, dba: Any) -> None:
    run_stateful(lambda: LimitsAndModel(runtime, dba), examples=15, steps=25)
