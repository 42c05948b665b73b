"""The operations of `Client` and `AsyncClient`: create instances, fire triggers, wait for their outcome."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import Connection

from interlock.db.audit.verify import Problem, verify_instance
from interlock.db.connection import one_snapshot, transaction
from interlock.db.core import archive, brakes, effects, history, instances, requests
from interlock.db.core.history import EventRow
from interlock.db.core.instances import InstanceRow
from interlock.db.core.request_rows import Right
from interlock.db.operations import handovers
from interlock.db.orchestration import commands
from interlock.workers.access.tokens import Principal
from interlock.workers.client.event_reader import EventReader
from interlock.workers.client.receipts import SETTLED, NotSettled, Receipt, receipt, without_conflict
from interlock.workers.client.transaction import Unit, Units
from interlock.workers.client.who_may import who_may
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth, with_terms
from interlock.workers.engine.locked_instance import add_linked
from interlock.workers.engine.trigger_request import Firing, checked, row
from interlock.workers.runtime import Runtime
from interlock.workers.telemetry.tracing import tracing
from interlock.workflows.errors import (
    AlreadyExists,
    Attempt,
    BadInput,
    InterlockError,
    NotYours,
    RequestConflict,
    UnknownInstance,
    UnknownTrigger,
    WrongData,
)
from interlock.workflows.guard_context import Linked
from interlock.workflows.input import names
from interlock.workflows.input.arguments import FreeModel, door
from interlock.workflows.machines.orchestration.reserved_fields import reserved_fields_error
from interlock.workflows.machines.orchestration.worker import OWN
from interlock.workflows.missing import missing
from interlock.workflows.output.counts import number_of

Caller = TypeVar("Caller")  # the type of `session`

BULK = 1_000  # rows of one statement
NOT_PLAIN = {"authority", "bound_version", "delay_seconds", "not_before"}  # what `accept_one` does not take
FiredRow = dict[str, Any]  # of `trigger_requests`, from a firing, with what its wake-up says of its instance
KNOWN_LIMIT = 10_000  # identities remembered; of them only the version can change, by a migration


@dataclass(frozen=True, slots=True)
class Identity:
    """The id, type and version of an instance, looked up by its name."""

    id: UUID
    type: str
    version: str
    entity_id: str


class Operations(Generic[Caller]):
    """Everything an agent needs. Accepting a trigger takes PostgreSQL only; the broker may be down."""

    def __init__(self, runtime: Runtime, project: str | UUID | None = None) -> None:
        self.runtime = runtime
        self.project = names.project_or(project, runtime.settings.project)
        self._principal: Principal | None = None
        self._units = Units(runtime)
        self._known: dict[str | UUID, Identity] = {}

    @door
    def create(
        self,
        type_: str,
        entity_id: str,
        *,
        project: str | UUID | None = None,
        context: FreeModel | None = None,
        by: str = "system",
        session: Caller | None = None,
    ) -> InstanceRow:
        """Create one instance under the newest definition of its type, or under the version that is named.

        Args:
            type_: `story`, `run`, `task` or another of `interlock definitions list`, or a type of your own; with
                `@VERSION` behind it, under that version (`workstream@0.1.0`). A deprecated one causes a warning in the
                log.
            entity_id: its name within the project, at most 100 characters.
            project: the project it belongs to, also the event bus channel; default: the client's.
            context: data that guards may read, a JSON object or an instance of the model that the definition names for
                it; a `story_id` links a pull request to its story.
            by: who creates it.
            session: create it in this session's transaction (READ COMMITTED), to commit or roll back with the caller's
                data.

        Returns:
            The new `workflow_instances` row.

        Raises:
            AlreadyExists: the project has that entity already.
            BadInput, UnknownWorkflow, UnknownInstance: nothing was written.
        """
        birth = self.birth(type_, entity_id, project=project, context=context, by=by)

        def deliver(unit: Unit) -> InstanceRow:
            self._warn(unit.connection, [birth])
            unit.effects += creation.deliver(unit.connection, [birth]).effects_due
            try:
                return instances.by_id(unit.connection, birth.id)
            except UnknownInstance as other:
                name = f"{birth.definition.type}/{entity_id}"
                raise AlreadyExists(f"{name} exists in project {birth.project} already") from other

        with self._recorded(session):
            return self._units.do(deliver, session)

    @door
    def create_many(self, wanted: Sequence[Birth]) -> int:
        """Create many instances, 1,000 per commit. Instances that already exist are left unchanged.

        Args:
            wanted: results of `birth`, any number; they may be linked to each other.

        Returns:
            How many are new.

        Raises:
            BadInput: a context cannot be stored; nothing was written.
            UnknownInstance: a context names an instance that does not exist; earlier batches of 1,000 may be written.
        """

        def deliver(unit: Unit) -> int:
            self._warn(unit.connection, part)
            delivered = creation.deliver(unit.connection, part)
            unit.effects += delivered.effects_due
            return len(delivered.new)

        for each in wanted:
            checked("context", each.context, self.runtime.settings.context_limit_bytes)
            self._require_sound(each)
        new = 0
        for start in range(0, len(wanted), BULK):
            part = wanted[start : start + BULK]
            with self._recorded(None):
                new += self._units.do(deliver, None)
        return new

    @door
    def birth(
        self,
        type_: str,
        entity_id: str,
        *,
        project: str | UUID | None = None,
        context: FreeModel | None = None,
        by: str = "system",
    ) -> Birth:
        """Validate an instance that is to be created, without reading or writing the database.

        Args:
            type_, entity_id, project, context, by: see `create`.

        Returns:
            The argument for `create_many`.

        Raises:
            BadInput, UnknownWorkflow: the instance is not valid.
        """
        definition = self.runtime.catalogue.called(type_)
        chosen, given = self.runtime.settings, definition.given_context(context or {})
        full_context = with_terms(chosen, definition, checked("context", given, chosen.context_limit_bytes))
        of_project = names.project_or(project, self.project)
        creator, proof = names.name("by", by), self._principal.proof() if self._principal else None
        made = Birth(definition, names.entity_id(entity_id), of_project, creator, full_context, proof=proof)
        self._require_sound(made)
        return made

    def _warn(self, connection: Connection, births: Sequence[Birth]) -> None:
        """Warn in the log of older versions that instances are created under and that are deprecated (VERSION-7)."""
        newest = self.runtime.catalogue.newest
        older = {birth.definition for birth in births if birth.definition is not newest[birth.definition.type]}
        if older:
            self.runtime.applier.deprecations.warn(connection, older)

    def _require_sound(self, birth: Birth) -> None:
        """Raise `BadInput` if an instance must not be created as a caller describes it."""
        definition, context = birth.definition, birth.context
        if definition is not self.runtime.catalogue.get(definition.type, definition.version):
            raise BadInput(f"{definition.type} {definition.version}: that is another definition than the known one")
        error = reserved_fields_error(definition, context) or "; ".join(definition.wrong_fields(context))
        if error:
            raise BadInput(f"context of a {definition.type}: {error}")
        if definition.type == "worker" and ("#" in birth.entity_id or _owned(context.get("capabilities"))):
            raise BadInput(
                f"a worker's name with a '#' and capabilities that begin with {OWN!r} come from its registration: "
                "use `Agent` or `interlock worker register`"
            )

    @door
    def fire(
        self,
        ref: str | UUID,
        trigger: str,
        *,
        by: str,
        request_id: str = "",
        data: FreeModel | None = None,
        after: datetime | timedelta | None = None,
        proof: str = "",
        if_version: int | None = None,
        session: Caller | None = None,
    ) -> Receipt:
        """Fire a trigger. It is accepted, exactly once, when this returns (or, with `session`, when that commits).

        Args:
            ref, trigger, by, request_id, data, after, proof, if_version: see `Firing`.
            session: accept it in this session's transaction (READ COMMITTED), to commit or roll back with the caller's
                data.

        Returns:
            The accepted request, or the recorded one if the same `request_id` was fired before.

        Raises:
            UnknownInstance, AmbiguousInstance, UnknownTrigger, BadInput, RequestConflict: nothing was accepted.
            NotYours: nothing was accepted. If PostgreSQL refused it, roll the transaction of `session` back.
        """
        return self._fire_many([Firing(ref, trigger, by, request_id, data or {}, after, proof, if_version)], session)[0]

    @door
    def fire_many(self, firings: Sequence[Firing], *, session: Caller | None = None) -> list[Receipt]:
        """Fire many triggers in order.

        Args:
            firings: any number; 1,000 are accepted per statement and commit.
            session: accept them in this session's transaction (READ COMMITTED).

        Returns:
            The receipts in the same order.

        Raises:
            UnknownInstance, AmbiguousInstance, UnknownTrigger, NotYours, BadInput, RequestConflict: nothing of that
                thousand was accepted, nor of those after it.
        """
        return self._fire_many(firings, session)

    def _fire_many(self, firings: Sequence[Firing], session: Caller | None) -> list[Receipt]:
        receipts: list[Receipt] = []
        for start in range(0, len(firings), BULK):
            receipts += self._accept(firings[start : start + BULK], session)
        return receipts

    @door
    def wait(self, request_ids: Iterable[str], *, timeout_seconds: float = 30.0) -> list[Receipt]:
        """Wait until triggers are applied, rejected, held or dead.

        Args:
            request_ids: the `request_id`s of their receipts.
            timeout_seconds: how long to wait at most.

        Returns:
            Receipts with `status` and `result`, in the given order. Their `replayed` is False: only `fire` knows it.

        Raises:
            NotSettled: some were not in time. They remain accepted.
            VersionConflict: one was rejected because its instance was not at its `if_version`.
        """
        ids = list(request_ids)
        until, pause = time.monotonic() + timeout_seconds, 0.005
        while True:
            with transaction(self.runtime.database) as connection:
                found = requests.by_ids(connection, ids)
            settled = [receipt(found[each]) for each in ids if each in found and found[each]["status"] in SETTLED]
            if len(settled) == len(ids):
                return without_conflict(settled)
            if time.monotonic() > until:
                left = f"{len(ids) - len(settled)} of {number_of(len(ids), 'trigger')}"
                raise NotSettled(f"{left} not applied within {timeout_seconds:g} s")
            self.runtime.pause(pause)
            pause = min(pause * 1.5, 0.25)

    @door
    def show(self, ref: str | UUID) -> dict[str, Any]:
        """Show an instance, what is linked to it, its newest requests and its effects.

        Args:
            ref: its UUID; or, in the client's project, `TYPE/ENTITY_ID` or an entity id that only one instance has.

        Returns:
            Its `workflow_instances` row, and `legal` (the triggers that its state accepts), `may` (by whom each of them
            may be fired: `anyone`, `holder`, `effect`, `machinery`, `decider`, `operator`), `missing` (which of them
            would be refused now for what is linked, and why), `handover` (the id of the handover that freezes it; None:
            none does), `brakes` (that hold what is fired at it, and why), `command` (which is run for it), `links`,
            `requests` and `effects` (the newest 20 each). `archived_at` is None unless it is archived.

        Raises:
            UnknownInstance, AmbiguousInstance: no instance has that name, or several have.
        """
        with transaction(self.runtime.database) as connection:
            found = instances.find_with_archived(connection, ref, self.project)
            definition = self.runtime.catalogue.get(found["workflow_type"], found["definition_version"])
            archived = found["archived_at"] is not None
            handover = None if archived else handovers.freezing(connection, found["id"])
            still = archived or handover is not None
            linked = (
                archive.linked(connection, found["id"]) if archived else instances.linked(connection, [found["id"]])
            )
            roles: dict[str, tuple[Linked, ...]] = {}
            for each in linked if not archived else ():
                add_linked(roles, each, found["project"])
            return dict(found) | {
                "command": commands.shown(connection, found["id"]),
                "handover": handover,
                "legal": [] if still else list(definition.legal(found["current_state"])),
                "may": {} if still else who_may(connection, definition, found),
                "missing": {} if still else missing(definition, found, roles),
                "brakes": brakes.on_instance(connection, found["id"]),
                "links": [dict(each) for each in linked],
                "requests": [dict(each) for each in requests.of_instance(connection, found["id"])],
                "effects": [dict(each) for each in effects.of_instance(connection, found["id"])],
            }

    @door
    def history(self, ref: str | UUID, *, after_seq: int = 0, limit: int | None = None) -> list[EventRow]:
        """Read an instance's events.

        Args:
            ref: see `show`.
            after_seq: only events after this one; an instance's first event has `seq` 1.
            limit: the most to return; default: all.

        Returns:
            Its history rows, oldest first; also those of an archived instance.

        Raises:
            UnknownInstance, AmbiguousInstance: see `show`.
        """
        with transaction(self.runtime.database) as connection:
            found = instances.find_with_archived(connection, ref, self.project)
            of_instance = history.of_instance if found["archived_at"] is None else archive.history
            return of_instance(connection, found["id"], after_seq=after_seq, limit=limit)

    @door
    def verify(self, ref: str | UUID) -> tuple[Problem, ...]:
        """Check that an instance's history was not rewritten: its hash chain, its moves, and its state.

        Args:
            ref: see `show`.

        Returns:
            What is wrong; empty: nothing. Each problem has `instance`, `seq` (the event; None: the instance itself) and
            `message`. Hashes that were computed anew are noticed only by `interlock audit verify`, which compares them
            with anchors.

        Raises:
            UnknownInstance, AmbiguousInstance: see `show`.
        """
        with transaction(self.runtime.database) as connection:
            one_snapshot(connection)
            found = instances.find_with_archived(connection, ref, self.project)
            return tuple(verify_instance(connection, found["id"], compute=self.runtime.blocking).problems)

    @door
    def _reader(
        self, cursor: str | None, project: str | UUID | None, every_project: bool, types: Sequence[str]
    ) -> EventReader:
        """What `events` iterates over. Raises as that does."""
        if every_project and project is not None:
            raise BadInput("give a project, or every_project, and not both")
        chosen = None if every_project else names.project_or(project, self.project)
        known = {names.name("type", each) for each in types}
        return EventReader(self.runtime, cursor=cursor, project=chosen, types=known)

    def _accept(self, firings: Sequence[Firing], session: Caller | None, right: Right | None = None) -> list[Receipt]:
        with self._recorded(session):
            rows = self._rows(firings, session, right)
            with traced(rows):
                return self._accept_rows(rows, session)

    @contextmanager
    def _recorded(self, session: Caller | None) -> Iterator[None]:
        try:
            yield
        except NotYours as refused:
            self._units.record(refused, session)
            raise

    def _accept_rows(self, rows: Sequence[FiredRow], session: Caller | None) -> list[Receipt]:
        plain = len(rows) == 1 and not rows[0].keys() & NOT_PLAIN
        if session is None and plain and (alone := self._accept_alone(rows[0])):
            return [alone]
        fingerprints = _fingerprints(rows)

        def accept(unit: Unit) -> dict[str, Receipt]:
            new = requests.accept(unit.connection, rows)
            for firing_row in rows:
                if accepted := new.get(firing_row["request_id"]):
                    unit.wakeups.append(dict(accepted) | firing_row["wakeup"])
            old = {each: sign for each, sign in fingerprints.items() if each not in new}
            receipts = {each: receipt(found) for each, found in new.items()}
            if old:
                for each, found in requests.recorded(unit.connection, old).items():
                    receipts[each] = receipt(found, replayed=True)
            return receipts

        receipts = self._units.do(accept, session)
        return [receipts[firing_row["request_id"]] for firing_row in rows]

    def _accept_alone(self, firing_row: Mapping[str, Any]) -> Receipt | None:
        """Accept one trigger in a single statement, the most common case; None if the request_id is already known."""
        wakeup = _due(firing_row)
        status = self._units.do_alone(lambda statements: requests.accept_one(statements, firing_row), wakeup)
        if status is None:
            return None
        held = requests.outcome(self.runtime.statements, firing_row["request_id"]) if status == "waiting" else None
        return receipt(wakeup | dict(held or {}))

    def _rows(self, firings: Sequence[Firing], session: Caller | None, right: Right | None = None) -> list[FiredRow]:
        refs = [firing.ref for firing in firings]
        remembered = self._known.keys() & set(refs)
        known = self._identify(refs, session)
        try:
            return [self._row(firing, known[firing.ref], right) for firing in firings]
        except (UnknownTrigger, WrongData):
            if not remembered:
                raise
        for ref in remembered:  # it may have moved to another version, which is the one thing that can change
            self._known.pop(ref, None)
        known = self._identify(refs, session)
        return [self._row(firing, known[firing.ref], right) for firing in firings]

    def _row(self, firing: Firing, identity: Identity, right: Right | None) -> FiredRow:
        definition = self.runtime.catalogue.get(identity.type, identity.version)
        definition.require_trigger(firing.trigger)
        wakeup = {"workflow_type": identity.type, "entity_id": identity.entity_id, "triggered_by": firing.by}
        own = {"wakeup": wakeup, **right.columns} if right else {"wakeup": wakeup}
        if isinstance(firing.data, BaseModel):
            firing = replace(firing, data=definition.given_data(firing.trigger, firing.data))
        made = row(firing, identity.id, limit_bytes=self.runtime.settings.context_limit_bytes) | own
        if self._principal:
            made["proof"] = self._principal.proof(made.get("proof"))
        definition.require_data(firing.trigger, made["metadata"])
        if not firing.proof and right is None:
            try:
                definition.require_open(firing.trigger, identity.entity_id, firing.by)
            except NotYours as refused:
                refused.attempt = Attempt("accept_all", [made])
                raise
        return made

    def _identify(self, refs: Iterable[str | UUID], session: Caller | None) -> dict[str | UUID, Identity]:
        known = {ref: self._known[ref] for ref in refs if ref in self._known}  # another thread or task may forget them
        if missing := list(dict.fromkeys(ref for ref in refs if ref not in known)):
            found = self._units.do(lambda unit: instances.find_many(unit.connection, missing, self.project), session)
            fresh = {
                ref: Identity(each["id"], each["workflow_type"], each["definition_version"], each["entity_id"])
                for ref, each in found.items()
            }
            # An entity id may become ambiguous later, and a caller's transaction may roll back: keep only UUIDs.
            if session is None:
                if len(self._known) > KNOWN_LIMIT:
                    self._known.clear()
                self._known.update((ref, each) for ref, each in fresh.items() if isinstance(ref, UUID))
            known |= fresh
        return known


def _owned(capabilities: object) -> bool:
    """Whether a list of capabilities has one that says where a worker runs, which nobody may give himself."""
    return isinstance(capabilities, list | tuple) and any(str(each).startswith(OWN) for each in capabilities)


def fire_by_right(
    operations: Operations[Any], firing: Firing, right: Right, session: Connection | None = None
) -> Receipt:
    """Fire a trigger by a right of Interlock's own parts, which no caller has; raises as `Operations.fire`."""
    return operations._accept([firing], session, right)[0]


def fired(operations: Operations[Any], firing: Firing) -> FiredRow:
    """The row of a trigger that is to be fired, for `accept_fired`; raises as `Operations.fire`."""
    with operations._recorded(None):
        return operations._rows([firing], None)[0]


def fired_as_known(operations: Operations[Any], firing: Firing) -> FiredRow | None:
    """As `fired`, from what is remembered of the instance; None if that is not enough, or if it is to be refused."""
    if (identity := operations._known.get(firing.ref)) is None:
        return None
    try:
        return operations._row(firing, identity, None)
    except InterlockError:
        return None


def accept_fired(operations: Operations[Any], row: FiredRow) -> Receipt:
    """Accept a trigger; raises as `Operations.fire`."""
    with operations._recorded(None):
        return operations._accept_rows([row], None)[0]


def accept_together(operations: Operations[Any], rows: Sequence[FiredRow]) -> dict[int, Receipt]:
    """Accept the triggers of several callers in one commit.

    Returns:
        The receipts of the new ones, by their places in `rows`. The others are left to `accept_fired`, because their
        `request_id` is known.

    Raises:
        DBAPIError: one of them is refused or cannot have what it needs at once, so none is accepted; or it is not known
            whether they are. `accept_fired` tells of each.
    """
    sender = operations.runtime.wakeup_sender  # an invalid broker address must raise before anything is accepted
    new = requests.accept_together(operations.runtime.statements, rows)
    receipts, woken = dict[int, Receipt](), list[Mapping[str, Any]]()
    for place, each in enumerate(rows):
        if accepted := new.pop(each["request_id"], None):
            woken.append(_due(each) | accepted)
            receipts[place] = receipt(woken[-1])
    if woken:
        sender.send(woken)
    return receipts


@contextmanager
def traced(rows: Sequence[FiredRow]) -> Iterator[None]:
    """Within it, rows are accepted: a span, if traces are on."""
    with at_work.accepting(rows) if (at_work := tracing()) else nullcontext():
        yield


def by_token(operations: Operations[Any]) -> bool:
    """Whether operations are those of a token's holder (`acting`)."""
    return operations._principal is not None


def acting(operations: Operations[Caller], principal: Principal, project: str | None = None) -> Operations[Caller]:
    """The same operations as the holder of a token has them: each write says by which token, and PostgreSQL judges it.

    Args:
        operations: of a client or a process; they stay as they are, and share connections and what they remember.
        principal: who presented the token (`tokens.find`). `by` must be its name: `principal.name`.
        project: where names are looked up and instances created, if not where the operations do.
    """
    made = copy(operations)
    made._principal = principal
    made.project = names.project_or(project, operations.project)
    return made


def _due(firing_row: Mapping[str, Any]) -> dict[str, Any]:
    """The accepted request, for its wake-up and its receipt; pending, unless PostgreSQL says otherwise."""
    instance_id, of_instance = UUID(firing_row["workflow_id"]), dict[str, Any](firing_row["wakeup"])
    return of_instance | {
        "request_id": firing_row["request_id"],
        "workflow_id": instance_id,
        "partition": requests.partition_of(instance_id),
        "trigger": firing_row["trigger"],
        "status": "pending",
    }


def _fingerprints(rows: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    signs: dict[str, bytes] = {}
    for each in rows:
        sign = bytes.fromhex(each["fingerprint"])
        if signs.setdefault(each["request_id"], sign) != sign:
            raise RequestConflict(
                f"request_id {each['request_id']!r} is used twice in this batch, with different bodies"
            )
    return signs
