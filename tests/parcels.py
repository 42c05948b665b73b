"""Several versions of one machine, for tests of migrations between them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.runtime import Runtime
from interlock.workflows.definition import ApprovalPoint, Deadline, Definition, Effect, Field, Guard, Link, T
from interlock.workflows.fields import name
from interlock.workflows.machines.orchestration.link_guards import retries_left
from tests.rights import operate
from tests.small_machines import small_machine

VOTED = Guard(
    "two_said_so", lambda case: bool(case.votes - {case.by}), "another must say so too", needs=frozenset({"votes"})
)

PARCEL_1_0 = small_machine(
    "parcel",
    "A parcel, from packed to delivered.",
    "packed sent stopped | delivered lost",
    T("send", "packed", "sent"),
    T("stop", "sent", "stopped", approval=ApprovalPoint()),
    T("go_on", "stopped", "sent", when=(VOTED,)),
    T("go_on", "stopped", "stopped"),
    T("deliver", "sent", "delivered"),
    T("lose", ("sent", "stopped"), "lost", severity="error"),
    T("weigh", "packed", "packed", effects=(Effect("notice", done="weighed"),)),
    T("weighed", "packed", "packed", by="effect"),
    deadlines=MappingProxyType({"sent": Deadline(3600.0, "lose")}),
)

# The same with one more move.
PARCEL_1_1 = replace(
    PARCEL_1_0,
    version="1.1.0",
    transitions=(*PARCEL_1_0.transitions, T("call_back", "sent", "packed")),
    links=(Link("crate", type="parcel", context_key="crate", inverse="parcels"),),
)

# Other names, another deadline, a required field, no `stop` and no `weighed`.
PARCEL_2_0 = replace(
    PARCEL_1_1,
    version="2.0.0",
    states=("packed", "under_way", "delivered", "lost"),
    transitions=(
        T("send", "packed", "under_way"),
        T("deliver", "under_way", "delivered"),
        T("lose", "under_way", "lost", severity="error"),
        T("weigh", "packed", "packed"),
    ),
    deadlines=MappingProxyType({"packed": Deadline(600.0, "send"), "under_way": Deadline(60.0, "lose")}),
    fields=(Field("address", name, "an address", required=True),),
)

# Its guards read counts of a typed row, which parcels do not have.
PARCEL_3_0 = replace(
    PARCEL_1_0,
    version="3.0.0",
    transitions=(*PARCEL_1_0.transitions, T("again", "sent", "packed", when=(retries_left,))),
)

WORKFLOWS: Mapping[tuple[str, str], Definition] = {
    (each.type, each.version): each for each in (PARCEL_1_0, PARCEL_1_1, PARCEL_2_0, PARCEL_3_0)
}


def record(runtime: Runtime, *operating: str) -> None:
    """Record the runtime's definitions, and grant operators."""
    with transaction(runtime.owned) as connection:
        definitions.record(connection, runtime.catalogue)
    operate(runtime, *operating)


def recorded(make_runtime: Callable[..., Runtime]) -> Runtime:
    """A runtime that knows these machines, as PostgreSQL does; `ann` is an operator."""
    made = make_runtime(definitions=("tests.parcels",))
    record(made, "ann")
    return made


def born(
    runtime: Runtime, type_: str, version: str, entity_id: str, project: str, context: Mapping[str, Any] | None = None
) -> UUID:
    """Create an instance under any version."""
    definition = runtime.catalogue.get(type_, version)
    birth = Birth(definition, entity_id, project, "test", context or {}, uuid7())
    with transaction(runtime.database) as connection:
        creation.deliver(connection, [birth])
    return birth.id
