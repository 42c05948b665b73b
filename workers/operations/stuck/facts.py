"""The facts on one stuck instance, and the reason why it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from interlock.db.core.limits import LimitPlace
from interlock.workflows.definition import Definition

Row = Mapping[Any, Any]
LATE_SECONDS = 10.0  # what is due for longer is overdue, not on its way


class Reason(NamedTuple):
    """Why an instance is stuck, and the command that would help, ready to paste.

    `harms`: the command would end or restart what may be well, as far as the reason says, so it is offered only for
    what is past its threshold (RECOVER-19).
    """

    text: str
    command: str
    harms: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """One stuck instance and its surroundings.

    Attributes:
        instance: a row of `db.operations.stuck.late`.
        definition: its machine.
        requests, effects: the requests to it, and its effects, in its present state.
        links: (role, id, workflow_type, entity_id, current_state) of the instances linked to it.
        details: what only its type has: a row of `db.operations.stuck.tasks`, `groups` or `last_heartbeats`, or whether
            an approval `releases` something.
        approvals: id -> `author`, `deciders`, `quorum` and `voters` of the open approvals that it is or waits for.
        spent: the limits of its project that have no room now, by the names that they count (`db.core.limits.full`).
    """

    instance: Row
    definition: Definition
    requests: Sequence[Row] = ()
    effects: Sequence[Row] = ()
    links: Sequence[Row] = ()
    details: Row = field(default_factory=dict)
    approvals: Mapping[Any, Row] = field(default_factory=dict)
    spent: Sequence[LimitPlace] = ()

    @property
    def id(self) -> str:
        """Its UUID, the only name that is never ambiguous."""
        return str(self.instance["id"])

    @property
    def state(self) -> str:
        """Its present state."""
        return str(self.instance["current_state"])

    def newest_request(self, *statuses: str) -> Row | None:
        """The newest of its requests in one of these statuses."""
        return next((each for each in reversed(self.requests) if each["status"] in statuses), None)

    def linked(self, role: str, *done: str) -> list[Row]:
        """The instances linked to it under a role, except those in one of the states `done`."""
        return [each for each in self.links if each["role"] == role and each["current_state"] not in done]
