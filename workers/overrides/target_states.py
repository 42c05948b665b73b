"""The target state of each override, by type and lineage (RECOVER-7)."""

from collections.abc import Mapping

from interlock.db.core.instances import InstanceRow
from interlock.workers.overrides.transaction import CannotOverride, name_of

OLDEST = "0.1."  # the oldest machines (LEGACY-1) have other names for their states

TARGET_STATES: Mapping[str, Mapping[str, str]] = {
    "complete-task": {"task": "completed", "step": "S_SUCCESS"},
    "fail-task": {"task": "failed", "step": "S_FAILED"},
    "reset-task": {"task": "pending", "step": "S_RETRYING"},
    "unblock-task": {"task": "pending"},
    "skip-step": {"task": "cancelled", "step": "S_SUCCESS"},
    "fail-workstream": {"workstream": "failed", "workstream 0.1": "S_FAILED"},
    "validate-workstream": {"workstream": "validating", "workstream 0.1": "S_SUCCESS"},
    "drop-patch": {"patch_ledger": "dropped"},
    "rollback-patch": {"patch_ledger": "rolled_back"},
    "reset-breaker": {"circuit_breaker": "CLOSED"},
}


def target_state(command: str, instance: InstanceRow) -> str:
    """The state that an override takes an instance to.

    Raises:
        CannotOverride: the override does not apply to this type.
    """
    types, named = TARGET_STATES[command], instance["workflow_type"]
    oldest = f"{named} 0.1"
    if instance["definition_version"].startswith(OLDEST) and oldest in types:
        return types[oldest]
    if named not in types:
        wanted = " or a ".join(name for name in types if " " not in name)
        raise CannotOverride(f"{command} applies to a {wanted}; {name_of(instance)} is a {named}")
    return types[named]
