"""An operator's act that gave dead triggers and effects new attempts (docs/spec/governance.md).

proposed → done

Its context names them, and never changes. It begins and ends in the commit in which they are revived.
"""

from interlock.workflows.definition import Definition, Field, T
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

MOST = 200  # requests and effects of one act; of more, there are several


def _ids(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MOST and all(isinstance(each, str) for each in value)


REDRIVE = Definition(
    type="redrive",
    version="1.0.0",
    summary="An operator gave dead triggers and effects new attempts.",
    order=(("proposed",), ("done",)),
    initial="proposed",
    terminal=frozenset({"done"}),
    by="operator",
    transitions=(T("redrive", "proposed", "done", when=(reason_given,), severity="warning"),),
    fields=(
        Field("requests", _ids, f"at most {MOST} ids of requests", required=True),
        Field("effects", _ids, f"at most {MOST} ids of effects", required=True),
    ),
)
