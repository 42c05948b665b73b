"""That an instance goes on in another system, and is frozen here (docs/spec/handover.md).

proposed → frozen → started    it lives there now
           frozen → returned   it goes on here

Its context is its terms, which never change: which instance, and how far its history goes. PostgreSQL moves nothing
that is frozen.
"""

import re
from uuid import UUID

from interlock.workflows.definition import Definition, Field, T
from interlock.workflows.machines.orchestration.fields import whole
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

SYSTEMS = ("temporal",)
HASH = re.compile(r"[0-9a-f]{64}")
GIVEN = (reason_given,)


def _id(value: object) -> bool:
    try:
        return isinstance(value, str) and str(UUID(value)) == value
    except ValueError:
        return False


def _hash(value: object) -> bool:
    return isinstance(value, str) and HASH.fullmatch(value) is not None


HANDOVER = Definition(
    type="handover",
    version="1.0.0",
    summary="An instance that goes on in another system.",
    order=(("proposed",), ("frozen",), ("started", "returned")),
    initial="proposed",
    terminal=frozenset({"started", "returned"}),
    by="operator",
    transitions=(
        T("freeze", "proposed", "frozen", when=GIVEN, severity="warning"),
        T("confirm", "frozen", "started", when=GIVEN, severity="warning"),
        T("give_back", "frozen", "returned", when=GIVEN, severity="warning"),
    ),
    fields=(
        Field("instance", _id, "the id of an instance, in lower case", required=True),
        Field("at", whole, "a whole number: the version of the instance", required=True),
        Field("head", _hash, "the hash of its last event, or of its birth: 64 hexadecimal digits", required=True),
        Field("system", lambda value: value in SYSTEMS, ", ".join(SYSTEMS), required=True),
        Field("subject", _id, "of an approval: the id of the instance whose trigger it holds"),
    ),
    required_metadata=("terms",),
)
