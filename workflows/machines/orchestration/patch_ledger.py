"""A patch, from its creation to its commit or its quarantine (docs/spec/patch.md).

created → validated → queued → applied → verified → committed → rolled_back
   ↓          ↓         ↓ ↑       ↓          ↓ (1.1.0)
   ↓          ↓   apply_failed    ↓          ↓
   └──────────┴─────────┴─────────┴──────────┴→ quarantined → dropped

Terminal states are final except for two moves that need somebody's authority (PATCH-5):
`roll_back`, after the compensation is done, and `drop`.

1.1.0 adds `commit_failed`: without it, a patch whose commit cannot be made stays `verified`,
and everything that waits for it waits for ever (PATCH-9).
"""

from dataclasses import replace

from interlock.workflows.definition import Authority, Definition, Effect, Field, Link, T, Transition
from interlock.workflows.fields import name, names, words
from interlock.workflows.machines.orchestration.fields import NAME_SAYS, RETRY_OF, WORKSTREAM_ID, retry_of, uuid
from interlock.workflows.machines.orchestration.link_guards import apply_retries_left, gates_passed
from interlock.workflows.machines.orchestration.metadata_guards import authorized, compensated, reason_given

VALIDATE = Effect("validate_patch", failed="validation_failed")
# A worktree holds one patch at a time: in a workstream these effects never run concurrently, nor during archiving.
APPLY = Effect("apply_patch", failed="apply_failed", exclusive="workstream_id")
COMMIT = Effect("commit_patch", exclusive="workstream_id")
COMMIT_OR_FAIL = replace(COMMIT, failed="commit_failed")
RESTORE = Effect("restore_worktree", exclusive="workstream_id")


def set_aside(trigger: str, source: str, *effects: Effect, by: Authority | tuple[Authority, ...] = ()) -> Transition:
    """A move into quarantine, which says why."""
    return T(trigger, source, "quarantined", by=by, when=(reason_given,), effects=effects, severity="warning")


PATCH_LEDGER_1_0 = Definition(
    type="patch_ledger",
    version="1.0.0",
    summary="A patch, from created to committed, quarantined or rolled back.",
    order=(  # POLICY-4
        ("created",),
        ("validated",),
        ("queued",),
        ("applied", "apply_failed"),
        ("verified",),
        ("committed", "quarantined", "dropped"),
        ("rolled_back",),
    ),
    initial="created",
    terminal=frozenset({"committed", "rolled_back", "quarantined", "dropped"}),  # POLICY-5
    by="machinery",
    events={"quarantined": "patch_quarantined", "rolled_back": "patch_rolled_back"},
    transitions=(
        T("validation_passed", "created", "validated", by="effect"),
        set_aside("validation_failed", "created", by="effect"),
        T("accept", "validated", "queued", effects=(APPLY,)),
        set_aside("violate_policy", "validated", by=("machinery", "operator")),
        T("apply_succeeded", "queued", "applied", by="effect"),
        T("apply_failed", "queued", "apply_failed", by="effect", severity="warning"),
        T("retry_apply", "apply_failed", "queued", when=(apply_retries_left,), effects=(APPLY,), back="retry"),
        set_aside("give_up", "apply_failed", RESTORE),
        T(
            "drop",
            "apply_failed",
            "dropped",
            by="operator",
            when=(authorized, reason_given),
            effects=(RESTORE,),
            severity="warning",
        ),
        T("tests_passed", "applied", "verified", when=(gates_passed,), effects=(COMMIT,)),
        set_aside("tests_failed", "applied", RESTORE),
        T("commit_succeeded", "verified", "committed", by="effect"),
        T(
            "roll_back",
            "committed",
            "rolled_back",
            by="operator",
            when=(authorized, reason_given, compensated),
            severity="critical",
            exceptional=True,
        ),
        T(
            "drop",
            "quarantined",
            "dropped",
            by="operator",
            when=(authorized, reason_given),
            severity="warning",
            exceptional=True,
        ),
    ),
    links=(
        Link("task", type="task", context_key="task_id", inverse="patches"),
        Link("workstream", type="workstream", context_key="workstream_id", inverse="patches"),
        Link("gates", type="test_gate", context_key="gates", inverse="judges"),
        retry_of("patch_ledger"),
    ),
    fields=(
        Field("patch_id", name, NAME_SAYS, required=True),
        WORKSTREAM_ID,
        Field("task_id", uuid, "the UUID of the task that made it"),
        Field("phase_id", name, NAME_SAYS),
        Field("message", words, "the words of its commit"),
        Field("gates", names, "a list of gates"),
        RETRY_OF,
    ),
    birth_effects=(VALIDATE,),
    required_metadata=("patch_id", "validation_results", "commit_sha", "quarantine_reason"),
)

PATCH_LEDGER_1_1 = replace(
    PATCH_LEDGER_1_0,
    version="1.1.0",
    summary="A patch, from created to committed, quarantined or rolled back; its commit may fail.",
    transitions=(
        *(
            replace(move, effects=(COMMIT_OR_FAIL,)) if move.trigger == "tests_passed" else move
            for move in PATCH_LEDGER_1_0.transitions
        ),
        set_aside("commit_failed", "verified", RESTORE, by="effect"),
    ),
)
