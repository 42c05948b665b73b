"""The seeds' tables and diagrams, typed off the seeds: not derived from the code, so that the code can be held to them.

One line a pair of states: `source -> dest`, then the triggers where the seed names them (`: a b`), then the severity
where it is not info (`! error`). Severities are SSOT 7.2.2's by kind of transition and those that a transition's own
text gives: what a person decides is a warning, as a retry and a recovery are.
"""

import re
from dataclasses import dataclass

LINE = re.compile(r"(\w+) -> (\w+)(?: : ([\w ]+?))?(?: ! (\w+))?$")


@dataclass(frozen=True)
class Table:
    """A machine as a seed writes it down."""

    source: str
    states: tuple[str, ...]
    terminal: frozenset[str]
    pairs: dict[tuple[str, str], frozenset[str]]
    severities: dict[tuple[str, str], str]


def table(source: str, states: str, terminal: str, moves: str, *, and_all_of: Table | None = None) -> Table:
    """Read one, beside all that another has (`and_all_of`)."""
    pairs = dict(and_all_of.pairs) if and_all_of else {}
    severities = dict(and_all_of.severities) if and_all_of else {}
    for line in moves.strip().splitlines():
        found = LINE.fullmatch(line.strip())
        assert found, line
        left, entered, triggers, severity = found.groups()
        pairs[left, entered] = frozenset((triggers or "").split())
        severities[left, entered] = severity or "info"
    listed = (*(and_all_of.states if and_all_of else ()), *states.split())
    ends = (and_all_of.terminal if and_all_of else frozenset()) | set(terminal.split())
    return Table(source, listed, frozenset(ends), pairs, severities)


RUN = table(
    "SSOT 1.2",
    "pending running succeeded failed canceled",
    "succeeded failed canceled",
    """
    pending -> running
    running -> succeeded
    running -> failed ! error
    running -> canceled ! warning
    pending -> canceled ! warning
    """,
)
WORKSTREAM = table(
    "SSOT 1.3 and 3.2.1, with the triggers of seed 001",
    "planned ready blocked executing validating completed failed cancelled skipped",
    "completed failed cancelled skipped",
    """
    planned -> ready : all_tasks_created
    planned -> blocked
    planned -> skipped ! warning
    planned -> cancelled : user_cancelled ! warning
    blocked -> ready
    ready -> executing : first_task_started
    ready -> skipped ! warning
    ready -> cancelled : user_cancelled ! warning
    executing -> validating : all_tasks_completed
    executing -> failed : critical_task_failed patch_set_aside ! critical
    executing -> cancelled : user_cancelled ! warning
    validating -> completed : validation_passed
    validating -> failed : validation_failed ! error
    """,
)
WORKSTREAM_1_1 = table(
    "ruling 4, SSOT 9.2",
    "paused",
    "",
    """
    executing -> failed : critical_task_failed patch_set_aside tasks_lost ! critical
    executing -> paused ! warning
    paused -> executing ! warning
    blocked -> skipped ! warning
    planned -> cancelled : user_cancelled cancel ! warning
    ready -> cancelled : user_cancelled cancel ! warning
    executing -> cancelled : user_cancelled cancel ! warning
    blocked -> cancelled : user_cancelled cancel ! warning
    validating -> cancelled : user_cancelled cancel ! warning
    paused -> cancelled : user_cancelled cancel ! warning
    """,
    and_all_of=WORKSTREAM,
)
TASK = table(
    "SSOT 1.4, ruling 3",
    "pending queued running validating completed failed retrying cancelled blocked",
    "completed failed cancelled",
    """
    pending -> queued : scheduler_assigned
    pending -> blocked : dependency_check_failed
    blocked -> pending : dependency_satisfied
    queued -> running : worker_started
    running -> validating : execution_completed
    running -> retrying : execution_failed timeout_exceeded ! warning
    running -> failed : execution_failed timeout_exceeded ! error
    running -> cancelled : user_cancelled ! warning
    retrying -> queued : retry_delay_elapsed
    validating -> completed : validation_passed
    validating -> failed : validation_failed ! error
    """,
)
TASK_1_1 = table(
    "ruling 4",
    "",
    "",
    """
    queued -> blocked ! warning
    running -> cancelled : user_cancelled cancel ! warning
    pending -> cancelled : user_cancelled cancel ! warning
    queued -> cancelled : user_cancelled cancel ! warning
    blocked -> cancelled : user_cancelled cancel ! warning
    validating -> cancelled : user_cancelled cancel ! warning
    retrying -> cancelled : user_cancelled cancel ! warning
    """,
    and_all_of=TASK,
)
WORKER = table(
    "SSOT 1.5, with the triggers of seed 001, and ruling 6",
    "initializing idle busy unresponsive shutdown",
    "shutdown",
    """
    initializing -> idle : registration_complete
    idle -> busy : task_assigned
    busy -> idle : task_completed
    busy -> unresponsive : health_check_timeout ! error
    unresponsive -> idle : health_check_recovered ! warning
    unresponsive -> shutdown : max_timeout_exceeded ! error
    idle -> shutdown : shutdown_requested max_timeout_exceeded
    busy -> shutdown : shutdown_requested
    """,
)
WORKER_1_1 = table(
    "ruling 4, SSOT 9.2",
    "suspended",
    "",
    "idle -> suspended ! warning\n suspended -> idle ! warning",
    and_all_of=WORKER,
)
UET_WORKER = table(
    "SSOT 2.1, where invariant 2 ends idle and draining workers too",
    "SPAWNING IDLE BUSY DRAINING TERMINATED",
    "TERMINATED",
    """
    SPAWNING -> IDLE
    SPAWNING -> TERMINATED ! error
    IDLE -> BUSY
    IDLE -> TERMINATED : shutdown_requested worker_crashed
    BUSY -> IDLE
    BUSY -> DRAINING
    BUSY -> TERMINATED ! error
    DRAINING -> TERMINATED : task_completed worker_crashed
    """,
)
PATCH_LEDGER = table(
    "SSOT 2.2, 8.2.1, rulings 1 and 2",
    "created validated queued applied apply_failed verified committed rolled_back quarantined dropped",
    "committed rolled_back quarantined dropped",
    """
    created -> validated
    created -> quarantined ! warning
    validated -> queued
    validated -> quarantined ! warning
    queued -> applied
    queued -> apply_failed ! warning
    applied -> verified
    applied -> quarantined ! warning
    apply_failed -> queued
    apply_failed -> quarantined ! warning
    apply_failed -> dropped ! warning
    verified -> committed
    committed -> rolled_back ! critical
    quarantined -> dropped ! warning
    """,
)
PATCH_LEDGER_1_1 = table(
    "SSOT 2.2.3's diagram, ruling 5", "", "", "verified -> quarantined ! warning", and_all_of=PATCH_LEDGER
)
TEST_GATE = table(
    "SSOT 2.3",
    "PENDING RUNNING PASSED FAILED BLOCKED",
    "PASSED FAILED",
    """
    PENDING -> RUNNING
    PENDING -> BLOCKED ! warning
    RUNNING -> PASSED
    RUNNING -> FAILED ! error
    BLOCKED -> PENDING
    """,
)
CIRCUIT_BREAKER = table(
    "SSOT 2.4",
    "CLOSED OPEN HALF_OPEN",
    "",
    """
    CLOSED -> OPEN : failure_threshold_exceeded ! error
    OPEN -> HALF_OPEN : cooldown_expires
    HALF_OPEN -> CLOSED : success ! warning
    HALF_OPEN -> OPEN : failure ! error
    """,
)
SUPERVISED_WORKER = table(
    "seed 002, section 1, ruling 8",
    "IDLE RUNNING PAUSED COMPLETED FAILED TERMINATED",
    "COMPLETED FAILED TERMINATED",
    """
    IDLE -> RUNNING : start_task
    RUNNING -> PAUSED : pause ! warning
    PAUSED -> RUNNING : resume ! warning
    RUNNING -> COMPLETED : complete_tasks
    RUNNING -> FAILED : error_unrecoverable ! error
    IDLE -> TERMINATED : terminate ! warning
    RUNNING -> TERMINATED : terminate ! warning
    PAUSED -> TERMINATED : terminate ! warning
    """,
)
JOB = table(
    "seed 002, section 2, ruling 8",
    "SUBMITTED PENDING RUNNING COMPLETED FAILED CANCELED",
    "COMPLETED FAILED CANCELED",
    """
    SUBMITTED -> PENDING : validate
    SUBMITTED -> CANCELED : cancel ! warning
    PENDING -> RUNNING : allocate_resources
    PENDING -> CANCELED : cancel ! warning
    RUNNING -> COMPLETED : success
    RUNNING -> FAILED : error ! error
    RUNNING -> CANCELED : cancel ! warning
    """,
)
OLDEST_WORKSTREAM = table(
    "seed 000",
    "S_PENDING S_RUNNING S_SUCCESS S_FAILED S_RETRYING S_ABANDONED",
    "S_SUCCESS S_ABANDONED",
    """
    S_PENDING -> S_RUNNING : start_execution
    S_RUNNING -> S_SUCCESS : all_steps_succeed
    S_RUNNING -> S_FAILED : step_fails ! error
    S_RUNNING -> S_ABANDONED : abandon ! warning
    S_FAILED -> S_RETRYING : retry_eligible ! warning
    S_FAILED -> S_ABANDONED ! error
    S_RETRYING -> S_RUNNING : retry_attempt
    """,
)
STEP = table(
    "seed 000",
    "S_PENDING S_RUNNING S_SUCCESS S_FAILED S_RETRYING",
    "S_SUCCESS",
    """
    S_PENDING -> S_RUNNING : dependencies_met
    S_RUNNING -> S_SUCCESS : success
    S_RUNNING -> S_FAILED : failure ! error
    S_FAILED -> S_RETRYING : retry_eligible ! warning
    S_RETRYING -> S_RUNNING : retry_attempt
    """,
)
OLDER_WORKSTREAM = table(
    "seed 001",
    "planned ready executing validating completed failed cancelled",
    "completed failed cancelled",
    """
    planned -> ready : all_tasks_created
    ready -> executing : first_task_started
    executing -> validating : all_tasks_completed
    executing -> failed : critical_task_failed ! critical
    validating -> completed : validation_passed
    validating -> failed : validation_failed ! error
    planned -> cancelled : user_cancelled ! warning
    ready -> cancelled : user_cancelled ! warning
    executing -> cancelled : user_cancelled ! warning
    """,
)
OLDER_TASK = table(
    "seed 001",
    "pending queued running validating completed failed retrying cancelled",
    "completed failed cancelled",
    """
    pending -> queued : scheduler_assigned
    queued -> running : worker_started
    running -> validating : execution_completed
    running -> retrying : execution_failed ! warning
    running -> failed : execution_failed ! error
    running -> cancelled : user_cancelled ! warning
    retrying -> queued : retry_delay_elapsed
    validating -> completed : validation_passed
    validating -> failed : validation_failed ! error
    """,
)

TABLES: dict[tuple[str, str], Table] = {
    ("run", "1.0.0"): RUN,
    ("run", "1.1.0"): RUN,
    ("workstream", "0.1.0"): OLDEST_WORKSTREAM,
    ("workstream", "0.2.0"): OLDER_WORKSTREAM,
    ("workstream", "1.0.0"): WORKSTREAM,
    ("workstream", "1.1.0"): WORKSTREAM_1_1,
    ("task", "0.2.0"): OLDER_TASK,
    ("task", "1.0.0"): TASK,
    ("task", "1.1.0"): TASK_1_1,
    ("step", "0.1.0"): STEP,
    ("worker", "1.0.0"): WORKER,
    ("worker", "1.1.0"): WORKER_1_1,
    ("uet_worker", "1.0.0"): UET_WORKER,
    ("patch_ledger", "1.0.0"): PATCH_LEDGER,
    ("patch_ledger", "1.1.0"): PATCH_LEDGER_1_1,
    ("test_gate", "1.0.0"): TEST_GATE,
    ("circuit_breaker", "1.0.0"): CIRCUIT_BREAKER,
    ("supervised_worker", "1.0.0"): SUPERVISED_WORKER,
    ("job", "1.0.0"): JOB,
}

# Moves along a pair of the table by another trigger than the one that gives the pair its severity.
OTHERWISE_SEVERE = {
    ("workstream", "patch_set_aside", "executing"): "error",  # SSOT 3.2.1, rule 2; nothing critical failed
    ("workstream", "tasks_lost", "executing"): "error",
    ("worker", "max_timeout_exceeded", "idle"): "error",
    ("uet_worker", "worker_crashed", "IDLE"): "error",
    ("uet_worker", "worker_crashed", "DRAINING"): "error",
    ("patch_ledger", "roll_back", "committed"): "critical",
}

# SSOT 1.2.5, 1.3.6, 1.5.5, 2.1.3, 2.2.4, 2.3.5, 8.1.1; seeds 000 and 002 (1.4, 2.4): `source -> dest`, each said to be
# invalid in so many words. `*` is any state at all.
FORBIDDEN: dict[str, str] = {
    "run": """
    succeeded -> *
    failed -> *
    canceled -> *
    running -> pending
    pending -> succeeded
    pending -> failed
    """,
    "workstream": """
    completed -> *
    failed -> *
    cancelled -> *
    skipped -> *
    executing -> planned
    executing -> blocked
    validating -> executing
    """,
    "task": """
    completed -> running
    """,
    "worker": """
    shutdown -> *
    initializing -> busy
    initializing -> unresponsive
    idle -> unresponsive
    """,
    "uet_worker": """
    TERMINATED -> *
    IDLE -> SPAWNING
    BUSY -> SPAWNING
    DRAINING -> IDLE
    DRAINING -> BUSY
    """,
    "patch_ledger": """
    committed -> created
    committed -> queued
    quarantined -> created
    quarantined -> validated
    quarantined -> queued
    quarantined -> committed
    dropped -> *
    rolled_back -> *
    """,
    "test_gate": """
    PASSED -> *
    FAILED -> PASSED
    RUNNING -> PENDING
    """,
    "supervised_worker": """
    IDLE -> PAUSED
    IDLE -> COMPLETED
    COMPLETED -> RUNNING
    COMPLETED -> PAUSED
    FAILED -> RUNNING
    TERMINATED -> *
    """,
    "job": """
    SUBMITTED -> RUNNING
    COMPLETED -> *
    FAILED -> RUNNING
    CANCELED -> RUNNING
    """,
}
FORBIDDEN_0_1 = """
    S_SUCCESS -> *
    S_ABANDONED -> *
    S_PENDING -> S_SUCCESS
    S_PENDING -> S_FAILED
    S_RUNNING -> S_PENDING
    S_SUCCESS -> S_RUNNING
"""

# SSOT 7.2.3.
REQUIRED_METADATA = {
    "task": {"worker_id", "duration_seconds", "retry_count", "exit_code", "timeout_occurred"},
    "workstream": {"total_tasks", "completed_tasks", "failed_tasks", "duration_seconds", "critical_failure"},
    "patch_ledger": {"patch_id", "validation_results", "commit_sha", "quarantine_reason"},
    "worker": {"heartbeat_status", "current_load", "last_heartbeat_age_seconds", "crash_detected"},
}
