"""The Python client: create instances, fire triggers, wait for what became of them.

from workers.client import Client

with Client() as interlock:
    story = interlock.create("story", "S-1", project_id=project)
    interlock.fire("S-1", "design_complete", by="agent-7")
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping
from sqlalchemy.orm import Session

from db import archive, effects, history, instances, metrics, requests
from db.connect import transaction
from workers import births
from workers.births import Birth
from workers.firing import Firing, checked, named, row
from workers.orchestration.terms import with_terms
from workers.runtime import Runtime
from workers.runtime import runtime as process_runtime
from workers.tracing import tracing
from workers.unit import Unit, Units
from workflows.errors import AlreadyExists, BadInput, InterlockError, RequestConflict, UnknownInstance, UnknownTrigger
from workflows.outcomes import FINISHED

SETTLED = FINISHED | {"waiting"}  # nothing more happens to these without somebody else's doing
BULK = 1_000  # rows of one statement
KNOWN_LIMIT = 10_000  # identities remembered; of them only the version can change, by a migration


class NotSettled(InterlockError):
    """The trigger is accepted but was not applied in time. It will be; look with `interlock show` or `doctor`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What is known of an instance by its name."""

    id: UUID
    type: str
    version: str
    entity_id: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """An accepted trigger. `replayed` says its request_id was accepted before; `result` is the recorded response."""

    request_id: str
    status: str
    workflow_id: UUID
    trigger: str
    replayed: bool = False
    result: Mapping[str, Any] | None = None
    error: str | None = None


class Client:
    """Everything an agent needs. Accepting a trigger takes PostgreSQL only; the broker may be down."""

    def __init__(self, runtime: Runtime | None = None) -> None:
        self.runtime = runtime or process_runtime()
        self._units = Units(self.runtime)
        self._known: dict[str | UUID, Identity] = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.close()

    def create(
        self,
        type_: str,
        entity_id: str,
        *,
        project_id: UUID,
        context: Mapping[str, Any] | None = None,
        by: str = "system",
        session: Session | None = None,
    ) -> RowMapping:
        """Create one instance under the newest definition of its type.

        Args:
            type_: `story`, `run`, `task` or another of `interlock definitions list`, or a type of your own.
            entity_id: its name within the project, at most 100 characters.
            project_id: the project, also the event bus channel.
            context: what its guards may look at; a `story_id` links a pull request to its story.
            by: who creates it.
            session: do it in this session's transaction, to commit or roll back with the caller's data.

        Returns:
            The new `workflow_instances` row.

        Raises:
            AlreadyExists: the project has that entity already.
            BadInput, UnknownWorkflow, UnknownInstance: nothing was written.
        """
        birth = self.birth(type_, entity_id, project_id=project_id, context=context, by=by)

        def deliver(unit: Unit) -> RowMapping:
            unit.effects += births.deliver(unit.connection, [birth]).effects_due
            try:
                return instances.find(unit.connection, str(birth.id))
            except UnknownInstance as other:
                raise AlreadyExists(f"{type_}/{entity_id} exists in project {project_id} already") from other

        return self._units.do(deliver, session)

    def create_many(self, wanted: Sequence[Birth]) -> int:
        """Create many instances in few statements; how many are new. Those that exist already stay as they are."""

        def deliver(unit: Unit) -> int:
            delivered = births.deliver(unit.connection, part)
            unit.effects += delivered.effects_due
            return len(delivered.new)

        new = 0
        for start in range(0, len(wanted), BULK):
            part = wanted[start : start + BULK]
            new += self._units.do(deliver, None)
        return new

    def birth(
        self,
        type_: str,
        entity_id: str,
        *,
        project_id: UUID,
        context: Mapping[str, Any] | None = None,
        by: str = "system",
    ) -> Birth:
        """An instance to be, checked, for `create_many`."""
        definition = self.runtime.catalogue.get(type_)
        chosen = self.runtime.settings
        kept = with_terms(chosen, definition, checked("context", context or {}, chosen.context_limit_bytes))
        if wrong := definition.wrong_fields(kept):
            raise BadInput(f"context of a {type_}: {'; '.join(wrong)}")
        return Birth(definition, named("entity id", entity_id), project_id, named("by", by), kept)

    def fire(
        self,
        ref: str | UUID,
        trigger: str,
        *,
        by: str,
        request_id: str = "",
        data: Mapping[str, Any] | None = None,
        after: datetime | timedelta | None = None,
        session: Session | None = None,
    ) -> Receipt:
        """Fire a trigger. It is accepted, exactly once, when this returns (or, with `session`, when that commits).

        Args:
            ref, trigger, by, request_id, data, after: see `Firing`.
            session: accept it in this session's transaction.

        Raises:
            UnknownInstance, AmbiguousInstance, UnknownTrigger, BadInput, RequestConflict: nothing was accepted.
        """
        return self.fire_many([Firing(ref, trigger, by, request_id, data or {}, after)], session=session)[0]

    def fire_many(self, firings: Sequence[Firing], *, session: Session | None = None) -> list[Receipt]:
        """Fire many triggers, in order, a thousand a statement and a commit; the receipts in the same order."""
        receipts: list[Receipt] = []
        for start in range(0, len(firings), BULK):
            receipts += self._accept(firings[start : start + BULK], session)
        return receipts

    def wait(self, request_ids: Iterable[str], *, timeout_seconds: float = 30.0) -> list[Receipt]:
        """Wait until these triggers are applied, refused, held or dead; the receipts in the order asked.

        Raises:
            NotSettled: some were not in time; they are accepted all the same.
        """
        ids = list(request_ids)
        until, pause = time.monotonic() + timeout_seconds, 0.005
        while True:
            with self._reading() as connection:
                found = requests.by_ids(connection, ids)
            settled = [_receipt(found[each]) for each in ids if each in found and found[each]["status"] in SETTLED]
            if len(settled) == len(ids):
                return settled
            if time.monotonic() > until:
                raise NotSettled(
                    f"{len(ids) - len(settled)} of {len(ids)} triggers not applied in {timeout_seconds:g} s"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def show(self, ref: str | UUID) -> dict[str, Any]:
        """An instance, what is linked to it, its newest requests and its effects."""
        with self._reading() as connection:
            found = instances.find_kept(connection, str(ref))
            definition = self.runtime.catalogue.get(found["workflow_type"], found["definition_version"])
            archived = found["archived_at"] is not None
            linked = (
                archive.linked(connection, found["id"]) if archived else instances.linked(connection, [found["id"]])
            )
            return dict(found) | {
                "legal": [] if archived else list(definition.legal(found["current_state"])),
                "links": [dict(each) for each in linked],
                "requests": [dict(each) for each in requests.of_instance(connection, found["id"])],
                "effects": [dict(each) for each in effects.of_instance(connection, found["id"])],
            }

    def history(self, ref: str | UUID, *, after_seq: int = 0) -> Sequence[RowMapping]:
        """An instance's events, oldest first."""
        with self._reading() as connection:
            found = instances.find_kept(connection, str(ref))
            of_instance = history.of_instance if found["archived_at"] is None else archive.history
            return of_instance(connection, found["id"], after_seq=after_seq)

    def _accept(self, firings: Sequence[Firing], session: Session | None) -> list[Receipt]:
        rows = self._rows(firings, session)
        if (at_work := tracing()) is None:
            return self._accept_rows(firings, rows, session)
        with at_work.accepting(rows):
            return self._accept_rows(firings, rows, session)

    def _accept_rows(
        self, firings: Sequence[Firing], rows: Sequence[dict[str, Any]], session: Session | None
    ) -> list[Receipt]:
        if session is None and len(rows) == 1 and firings[0].after is None and (alone := self._accept_alone(rows[0])):
            return [alone]
        fingerprints = _fingerprints(rows)

        def accept(unit: Unit) -> dict[str, Receipt]:
            new = requests.accept(unit.connection, rows)
            for firing_row in rows:
                if accepted := new.get(firing_row["request_id"]):
                    unit.hints.append(dict(accepted) | firing_row["hint"])
            old = {each: sign for each, sign in fingerprints.items() if each not in new}
            receipts = {each: _receipt(found) for each, found in new.items()}
            if old:
                metrics.note(unit.connection, {(metrics.IDEMPOTENCY_HITS, ()): len(old)})
                for each, found in requests.recorded(unit.connection, old).items():
                    receipts[each] = _receipt(found, replayed=True)
            return receipts

        receipts = self._units.do(accept, session)
        return [receipts[firing_row["request_id"]] for firing_row in rows]

    def _accept_alone(self, firing_row: Mapping[str, Any]) -> Receipt | None:
        """The commonest case by its shortest way; None where the request_id is known."""
        instance_id = UUID(firing_row["workflow_id"])
        hint = firing_row["hint"] | {
            "request_id": firing_row["request_id"],
            "lane": requests.lane_of(instance_id),
            "trigger": firing_row["trigger"],
            "status": "pending",
        }
        accepted = self._units.do_alone(lambda statements: requests.accept_one(statements, firing_row), hint)
        return _receipt(accepted) if accepted else None

    def _rows(self, firings: Sequence[Firing], session: Session | None) -> list[dict[str, Any]]:
        refs = [firing.ref for firing in firings]
        remembered = self._known.keys() & set(refs)
        known = self._identify(refs, session)
        try:
            return [self._row(firing, known[firing.ref]) for firing in firings]
        except UnknownTrigger:
            if not remembered:
                raise
        for ref in remembered:  # it may have moved to another version, which is the one thing that can change
            del self._known[ref]
        known = self._identify(refs, session)
        return [self._row(firing, known[firing.ref]) for firing in firings]

    def _row(self, firing: Firing, identity: Identity) -> dict[str, Any]:
        self.runtime.catalogue.get(identity.type, identity.version).require_trigger(firing.trigger)
        hint = {"workflow_type": identity.type, "entity_id": identity.entity_id, "triggered_by": firing.by}
        return row(firing, identity.id, limit_bytes=self.runtime.settings.context_limit_bytes) | {"hint": hint}

    def _identify(self, refs: Iterable[str | UUID], session: Session | None) -> dict[str | UUID, Identity]:
        known = self._known
        if len(known) > KNOWN_LIMIT:
            known.clear()
        if missing := list(dict.fromkeys(ref for ref in refs if ref not in known)):
            found = self._units.do(lambda unit: instances.find_many(unit.connection, missing), session)
            fresh = {
                ref: Identity(each["id"], each["workflow_type"], each["definition_version"], each["entity_id"])
                for ref, each in found.items()
            }
            # An entity id may become ambiguous later, and a caller's transaction may roll back: keep only UUIDs.
            if session is None:
                known.update((ref, each) for ref, each in fresh.items() if isinstance(ref, UUID))
            return {ref: fresh.get(ref) or known[ref] for ref in refs}
        return known

    def _reading(self) -> AbstractContextManager[Connection]:
        return transaction(self.runtime.database)


def _fingerprints(rows: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    signs: dict[str, bytes] = {}
    for each in rows:
        sign = bytes.fromhex(each["fingerprint"])
        if signs.setdefault(each["request_id"], sign) != sign:
            raise RequestConflict(f"request_id {each['request_id']!r} is used twice here, with different bodies")
    return signs


def _receipt(found: Mapping[str, Any] | RowMapping, *, replayed: bool = False) -> Receipt:
    return Receipt(
        found["request_id"],
        found["status"],
        found["workflow_id"],
        found["trigger"],
        replayed,
        found.get("result"),
        found.get("error"),
    )
