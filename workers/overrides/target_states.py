"""The target state of each override, by type (RECOVER-7)."""

from collections.abc import Mapping

from interlock.db.core.instances import InstanceRow
from interlock.workers.overrides.transaction import CannotOverride, name_of

LEGACY = "0.1"  # the definitions of these versions name their states S_… (LEGACY-1)

# Override -> type -> state. "workstream 0.1" is a workstream under a definition 0.1.x; a `step` has only such versions.
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
    states, type_ = TARGET_STATES[command], instance["workflow_type"]
    legacy = f"{type_} {LEGACY}"
    if instance["definition_version"].startswith(f"{LEGACY}.") and legacy in states:
        return states[legacy]
    if type_ not in states:
        wanted = " or ".join(name for name in states if " " not in name)
        raise CannotOverride(f"{command} is for instances of {wanted}, not for {name_of(instance)}")
    return states[type_]
