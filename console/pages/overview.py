"""What needs whoever looks, and how the installation does."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from time import time
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.api.routes.approvals import inbox
from interlock.console.machines import kinds
from interlock.console.rendering import page
from interlock.console.session import Lister
from interlock.db.connection import transaction
from interlock.db.core import brakes, history, newest_instances
from interlock.db.core.counters import Series
from interlock.db.operations import stuck

router = APIRouter()

SHOWN = 5  # of each list
STATES = "entity_state"


class StateTally(NamedTuple):
    """How many instances of a type are in a state."""

    workflow_type: str
    current_state: str
    many: int


@router.get("/")
async def overview(request: Request, caller: Lister) -> Response:
    """The first page. Whoever sees all projects sees the installation, too; others only what is of theirs."""
    projects = caller.principal.projects
    samples = await request.app.state.readings.now() if projects is None else {}
    waiting = await inside(_waiting, caller)
    tallies = _of_metrics(samples) if projects is None else await inside(_of_projects, caller)
    return page(
        request,
        "overview.html",
        **waiting,
        shown=SHOWN,
        tallies=_by_type(tallies),
        kinds=kinds(caller.access.runtime.catalogue, [each._asdict() for each in tallies]),
        looked_at=None if projects is None else newest_instances.LOOKED_AT,
        pace=await inside(_pace, caller) if projects is None else None,
        parts_of=_installation(samples) if projects is None else None,
    )


def _waiting(caller: Caller) -> dict[str, Any]:
    projects = caller.principal.projects
    with transaction(caller.access.runtime.database) as connection:
        kept = stuck.kept(connection, projects, limit=SHOWN)
        braked = [each for each in brakes.listed(connection) if projects is None or each["project"] in projects]
    return {"mine": inbox(caller, None, mine=True, limit=SHOWN)["items"], "stuck": kept, "brakes": braked}


def _of_projects(caller: Caller) -> list[StateTally]:
    with transaction(caller.access.runtime.database) as connection:
        found = newest_instances.by_state(connection, caller.principal.projects or ())
    return [StateTally(**each) for each in found]


def _of_metrics(samples: Mapping[Series, float]) -> list[StateTally]:
    counted = ((labels, int(value)) for (name, labels), value in samples.items() if name == STATES and value >= 1)
    return [StateTally(labels[0], labels[1], many) for labels, many in counted]


def _by_type(tallies: Iterable[StateTally]) -> Sequence[tuple[str, list[StateTally]]]:
    """Types by how many instances they have, and their states likewise."""
    types: defaultdict[str, list[StateTally]] = defaultdict(list)
    for each in sorted(tallies, key=lambda each: -each.many):
        types[each.workflow_type].append(each)
    return sorted(types.items(), key=lambda each: -sum(state.many for state in each[1]))


def _pace(caller: Caller) -> dict[str, list[int]]:
    """Moves a minute in the last hour, for the plot; minutes without one are 0."""
    with transaction(caller.access.runtime.database) as connection:
        moves = dict(history.pace(connection))
    now = int(time()) // 60 * 60
    first = min(moves, default=now) if sum(moves.values()) >= history.PACED else now - 3_600
    minutes = list(range(first, max(now, *moves) + 60, 60)) if moves else []
    return {"x": minutes, "y": [moves.get(each, 0) for each in minutes]}


def _installation(samples: Mapping[Series, float]) -> Mapping[str, Any]:
    """What the card of the installation says."""

    def one(name: str, *labels: str) -> float:
        return samples.get((f"interlock_{name}", labels), 0.0)

    def labelled(name: str) -> dict[str, float]:
        return {labels[0]: value for (each, labels), value in samples.items() if each == f"interlock_{name}" and value}

    return {
        "oldest_seconds": one("oldest_pending_request_seconds"),
        "requests": labelled("requests"),
        "effects": labelled("effects"),
        "workers": labelled("workers"),
        "beat": bool(one("beat_alive")),
        "relay": {
            labels[0]: value for (name, labels), value in samples.items() if name == "interlock_relay_lag_seconds"
        },
        "breakers": labelled("breakers_open"),
        "schedules": labelled("schedules"),
        "problems": one("audit_problems"),
        "audited_seconds": one("audit_age_seconds"),
    }
