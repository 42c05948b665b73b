"""Where each instance of a round stands: as locked, then as each move of the round leaves it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from db import instances, operators, requests, typed
from db.rounds import Due
from workflows.case import Case, Linked, Override
from workflows.catalogue import Catalogue
from workflows.definition import Definition


@dataclass(slots=True)
class Standing:
    """One instance during a round. `seen` is the version it was locked at; `halted`, that its requests must wait."""

    id: UUID
    type: str
    entity_id: str
    project_id: UUID
    definition: Definition
    approvals: Definition
    state: str
    seen: int
    version: int
    context: Mapping[str, Any]
    votes: dict[str, set[str]] = field(default_factory=dict)
    linked: dict[str, tuple[Linked, ...]] = field(default_factory=dict)
    row: Mapping[str, Any] = field(default_factory=dict)
    operators: frozenset[str] = frozenset()
    halted: bool = False

    @property
    def run_id(self) -> str | None:
        """The run it belongs to, if any."""
        return str(self.id) if self.type == "run" else self.context.get("run_id")

    def is_stale(self, trigger: str) -> bool:
        """Has a move of this round outdated the typed row that this trigger's guards read?"""
        return self.version != self.seen and "row" in self.definition.needs.get(trigger, ())

    @property
    def typed(self) -> str:
        """Where its typed row is to be found."""
        return "lineage" if self.definition.version.startswith("0.") else self.type

    def case(self, request: Due) -> Case:
        """The question a request puts to this instance, with all that its guards may look at."""
        return Case(
            state=self.state,
            version=self.version,
            context=self.context,
            trigger=request["trigger"],
            by=request["triggered_by"],
            metadata=request["metadata"],
            bound_version=request["bound_version"],
            granted=request["granted"],
            linked=self.linked,
            votes=frozenset(self.votes.get(request["trigger"], ())),
            row=self.row,
            override=self._override(request) if request["origin"] == "override" else None,
        )

    def _override(self, request: Due) -> Override:
        by = request["triggered_by"]
        return Override(str(request["metadata"]["override"].get("to")), by in self.operators)


def take(connection: Connection, catalogue: Catalogue, due: Sequence[Due]) -> dict[UUID, Standing]:
    """The instances that requests are meant for, each once, with the facts that deciding will take.

    Raises:
        UnknownWorkflow: an instance's definition is not known to this process.
    """
    approvals = catalogue.get("approval")
    standings: dict[UUID, Standing] = {}
    for row in due:
        if row["workflow_id"] not in standings:
            standings[row["workflow_id"]] = Standing(
                id=row["workflow_id"],
                type=row["workflow_type"],
                entity_id=row["entity_id"],
                project_id=row["project_id"],
                definition=catalogue.get(row["workflow_type"], row["definition_version"]),
                approvals=approvals,
                state=row["current_state"],
                seen=row["version"],
                version=row["version"],
                context=row["context"],
            )
    _look_up(connection, standings, due)
    return standings


def _look_up(connection: Connection, standings: Mapping[UUID, Standing], due: Sequence[Due]) -> None:
    # Most triggers need nothing but the instance; only the others cost a query.
    wanted: dict[str, set[UUID]] = {"linked": set(), "votes": set(), "row": set()}
    for request in due:
        instance_id = request["workflow_id"]
        for fact in standings[instance_id].definition.needs.get(request["trigger"], ()):
            wanted[fact].add(instance_id)
    for row in instances.linked(connection, list(wanted["linked"])):
        roles = standings[row["workflow_id"]].linked
        other = Linked(row["workflow_type"], row["entity_id"], row["current_state"])
        roles[row["role"]] = (*roles.get(row["role"], ()), other)
    for row in requests.waiting(connection, wanted["votes"]) if wanted["votes"] else ():
        standings[row["workflow_id"]].votes.setdefault(row["trigger"], set()).add(row["triggered_by"])
    for instance_id, columns in typed.rows(connection, _by_type(standings, wanted["row"])).items():
        standings[instance_id].row = dict(columns)
    overrides = [request for request in due if request["origin"] == "override"]
    if not overrides:
        return
    allowed = operators.among_them(connection, {each["triggered_by"] for each in overrides})
    for request in overrides:
        standings[request["workflow_id"]].operators = allowed


def _by_type(standings: Mapping[UUID, Standing], ids: set[UUID]) -> dict[str, list[UUID]]:
    by_type: dict[str, list[UUID]] = {}
    for instance_id in ids:
        by_type.setdefault(standings[instance_id].typed, []).append(instance_id)
    return by_type
