"""The instances of a round: their state when they were locked, updated by each move of the round."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.core import approvals, guard_rows, instances, requests
from interlock.db.core.rounds import Due
from interlock.db.fast_path import Row
from interlock.db.operations import operators
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.definition import Definition, Fact
from interlock.workflows.guard_context import Case, Linked, Override


@dataclass(slots=True)
class LockedInstance:
    """An instance locked for a round, at `locked_version`.

    Attributes:
        named: the seq of a request that changes a link -> the instance that its data names.
        votes: trigger -> who has moved it with that trigger since it entered its state.
        held: the triggers that an approval holds for its present version.
        timer_due: when the deadline of its state fires, if that is needed.
        approved_by: the seq of a request that was held -> the approval that released it, with its deciders and votes.
        halted: its further requests must wait.
    """

    id: UUID
    type: str
    entity_id: str
    project: str
    definition: Definition
    approvals: Definition
    state: str
    locked_version: int
    version: int
    context: Mapping[str, Any]
    votes: dict[str, set[str]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    timer_due: datetime | None = None
    approved_by: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    linked: dict[str, tuple[Linked, ...]] = field(default_factory=dict)
    named: dict[int, Linked] = field(default_factory=dict)
    row: Mapping[str, Any] = field(default_factory=dict)
    operators: frozenset[str] = frozenset()
    halted: bool = False

    @property
    def run_id(self) -> str | None:
        """The run that the instance belongs to, if any."""
        return str(self.id) if self.type == "run" else self.context.get("run_id")

    def is_stale(self, trigger: str) -> bool:
        """Whether a move of this round made the typed row out of date that this trigger's guards read."""
        return self.version != self.locked_version and "row" in self.definition.needs.get(trigger, ())

    def is_unsettled(self, request: Due, relinked: Container[UUID], moved: Container[UUID]) -> bool:
        """Whether this round changed links that the guards of a request read, or moved the instance that it names."""
        needs, named = self.definition.needs.get(request["trigger"], ()), self.named.get(request["seq"])
        return ("linked" in needs and self.id in relinked) or (named is not None and named.id in moved)

    @property
    def typed(self) -> str:
        """The type under which the instance's typed row is stored."""
        return "lineage" if self.definition.version.startswith("0.") else self.type

    def note_move(self, source: str, request: Due) -> None:
        """Keep `held`, `votes` and `timer_due` up to date with a move of this round, which left `source`."""
        self.held.clear()  # an approval is for a version (APPROVAL-5)
        if self.state != source:
            self.votes.clear()
            self.timer_due = None
        elif "votes" in self.definition.needs[request["trigger"]] and request["origin"] != "override":
            self.votes.setdefault(request["trigger"], set()).add(request["triggered_by"])

    def case(self, request: Due) -> Case:
        """The case to decide for a request: the instance, the request, and all facts that guards may read."""
        if_version = _if_version(request)
        return Case(
            state=self.state,
            version=self.version,
            context=self.context,
            trigger=request["trigger"],
            by=request["triggered_by"],
            metadata=request["metadata"],
            bound_version=request["bound_version"] if if_version is None else None,
            if_version=if_version,
            granted=request["granted"],
            linked=self.linked,
            named=self.named.get(request["seq"]),
            votes=frozenset(self.votes.get(request["trigger"], ())),
            held=request["trigger"] in self.held,
            row=self.row,
            override=self._override(request) if request["origin"] == "override" else None,
        )

    def _override(self, request: Due) -> Override:
        by = request["triggered_by"]
        return Override(str(request["metadata"]["override"].get("to")), by in self.operators)


def _if_version(request: Due) -> int | None:
    """The version that a caller named; None if Interlock bound the request, or an approval did."""
    callers = request["origin"] == "agent" and request["authority"] not in requests.OWN_RIGHTS
    return request["bound_version"] if callers and not request["granted"] else None


def take(connection: Connection, catalogue: Catalogue, due: Sequence[Due]) -> dict[UUID, LockedInstance]:
    """The instances that requests address, each once, with the facts that deciding needs.

    Raises:
        UnknownWorkflow: this process does not know an instance's definition.
    """
    approval = catalogue.get("approval")
    locked_instances: dict[UUID, LockedInstance] = {}
    for row in due:
        if row["workflow_id"] not in locked_instances:
            locked_instances[row["workflow_id"]] = LockedInstance(
                id=row["workflow_id"],
                type=row["workflow_type"],
                entity_id=row["entity_id"],
                project=row["project"],
                definition=catalogue.get(row["workflow_type"], row["definition_version"]),
                approvals=approval,
                state=row["current_state"],
                locked_version=row["version"],
                version=row["version"],
                context=row["context"],
            )
    _look_up(connection, locked_instances, due)
    return locked_instances


def _look_up(connection: Connection, locked_instances: Mapping[UUID, LockedInstance], due: Sequence[Due]) -> None:
    # Most triggers need no facts but the instance itself; only the others cost a query.
    wanted: dict[Fact, set[UUID]] = {fact: set() for fact in get_args(Fact)}
    for request in due:
        instance_id = request["workflow_id"]
        for fact in locked_instances[instance_id].definition.needs.get(request["trigger"], ()):
            wanted[fact].add(instance_id)
    for other in instances.linked(connection, list(wanted["linked"]), _roles(locked_instances, due)):
        locked = locked_instances[other["workflow_id"]]
        add_linked(locked.linked, other, locked.project)
    if wanted["named"]:
        _look_up_named(connection, locked_instances, due)
    for row in approvals.votes(connection, wanted["votes"]) if wanted["votes"] else ():
        locked_instances[row["workflow_id"]].votes.setdefault(row["trigger"], set()).add(row["triggered_by"])
    for row in approvals.held(connection, wanted["held"]) if wanted["held"] else ():
        locked_instances[row["workflow_id"]].held.add(row["trigger"])
    for row in requests.timers(connection, wanted["timer"]) if wanted["timer"] else ():
        locked_instances[row["workflow_id"]].timer_due = row["not_before"]
    for instance_id, columns in guard_rows.rows(connection, _by_type(locked_instances, wanted["row"])).items():
        locked_instances[instance_id].row = dict(columns)
    released = {request["seq"]: request["workflow_id"] for request in due if request["granted"]}
    for row in approvals.releasing(connection, list(released)) if released else ():
        said = {"id": str(row["id"]), "name": row["entity_id"], "deciders": row["deciders"], "votes": row["votes"]}
        if row["overridden_by"]:
            said["overridden_by"] = row["overridden_by"]
        locked_instances[released[row["seq"]]].approved_by[row["seq"]] = said
    overrides = [request for request in due if request["origin"] == "override"]
    if not overrides:
        return
    allowed = operators.current(connection, {each["triggered_by"] for each in overrides})
    for request in overrides:
        locked_instances[request["workflow_id"]].operators = allowed


def _roles(locked_instances: Mapping[UUID, LockedInstance], due: Sequence[Due]) -> set[str] | None:
    """The roles of links that the guards of these requests read; None: all."""
    found: set[str] = set()
    for request in due:
        read = locked_instances[request["workflow_id"]].definition.roles.get(request["trigger"], ())
        if read is None:
            return None
        found.update(read)
    return found


def add_linked(roles: dict[str, tuple[Linked, ...]], row: RowMapping | Row, project: str) -> None:
    """Add a row of `instances.linked`, as guards of an instance of this project see it, to those in the same role."""
    foreign = row["project"] != project
    other = Linked(row["workflow_type"], row["entity_id"], row["current_state"], row["id"], foreign)
    roles[row["role"]] = (*roles.get(row["role"], ()), other)


def _look_up_named(connection: Connection, locked_instances: Mapping[UUID, LockedInstance], due: Sequence[Due]) -> None:
    """Find the instances that the data of triggers names which change a link; they do not move before this commits."""
    for request in due:
        locked = locked_instances[request["workflow_id"]]
        if (relinked := locked.definition.relinked(request["trigger"])) is None:
            continue
        link, data_key = relinked
        ref = request["metadata"].get(data_key)
        row = instances.hold(connection, link.type, locked.project, ref) if isinstance(ref, str) else None
        if row is not None:
            locked.named[request["seq"]] = Linked(link.type, row["entity_id"], row["current_state"], row["id"])


def _by_type(locked_instances: Mapping[UUID, LockedInstance], ids: set[UUID]) -> dict[str, list[UUID]]:
    by_type: dict[str, list[UUID]] = {}
    for instance_id in ids:
        by_type.setdefault(locked_instances[instance_id].typed, []).append(instance_id)
    return by_type
