"""Operators freeze a phase of a project, and thaw it: events, applied at once (docs/spec/phase.md)."""

from interlock.db.core import instances
from interlock.db.core.instances import InstanceRow
from interlock.workers.client.receipts import require_version
from interlock.workers.overrides.at_once import at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door


@door
def freeze(runtime: Runtime, phase: str, order: OverrideOrder, *, project: str | None = None) -> InstanceRow:
    """Freeze a phase: none of its tasks is queued or claimed, and none of its workstreams lands, until it is thawed.

    Running tasks and gates go on.

    Args:
        runtime: whose database.
        phase: its name or UUID.
        order: the operator, why, and at which version of the phase; a dry run is refused.
        project: default: the runtime's.

    Returns:
        The phase's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        UnknownInstance: no plan of the project has declared the phase.
        CannotMove: it is frozen already.
        VersionConflict: it is not at the version of the order.
        StillDeciding: see `at_once`.
    """
    return _moved(runtime, phase, "freeze", order, project)


@door
def thaw(runtime: Runtime, phase: str, order: OverrideOrder, *, project: str | None = None) -> InstanceRow:
    """Thaw a frozen phase: its runs go on.

    Args:
        runtime, phase, order, project: see `freeze`.

    Returns:
        The phase's instance.

    Raises:
        NotAnOperator, UnknownInstance, VersionConflict, StillDeciding: see `freeze`.
        CannotMove: it is not frozen.
    """
    return _moved(runtime, phase, "thaw", order, project)


def _moved(runtime: Runtime, phase: str, trigger: str, order: OverrideOrder, project: str | None) -> InstanceRow:
    of_project = names.project_or(project, runtime.settings.project)
    with at_once(runtime) as acting:
        require_operator(acting.connection, order.by, trigger, f"phase {phase}", project=of_project)
        found = instances.find(acting.connection, phase, of_project, "phase")
        require_version(found, order.if_version)
        acting.move(found["id"], trigger, by=order.by, reason=order.reason, right=order.right)
        return instances.by_id(acting.connection, found["id"])
