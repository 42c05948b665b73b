"""The orchestration's machines, written out by hand; `move_table` says how to read them."""

from tests.unit.move_table import table

RUN = table(
    "docs/spec/run.md",
    "pending running succeeded failed canceled",
    "succeeded failed canceled",
    """
    pending -> running
    running -> succeeded
    running -> failed ! error
    running pending -> canceled ! warning
    """,
)
WORKSTREAM = table(
    "docs/spec/workstream.md",
    "planned ready blocked executing validating completed failed cancelled skipped",
    "completed failed cancelled skipped",
    """
    planned -> ready : all_tasks_created
    planned -> blocked
    planned ready -> skipped ! warning
    planned ready executing -> cancelled : user_cancelled ! warning
    blocked -> ready
    ready -> executing : first_task_started
    executing -> validating : all_tasks_completed
    executing -> failed : critical_task_failed patch_set_aside ! critical
    validating -> completed : validation_passed
    validating -> failed : validation_failed ! error
    """,
)
WORKSTREAM_1_1 = table(
    "VERSION-6",
    "paused",
    "",
    """
    executing -> failed : critical_task_failed patch_set_aside tasks_lost ! critical
    executing -> paused ! warning
    paused -> failed : critical_task_failed ! critical
    paused -> executing ! warning
    blocked -> skipped ! warning
    planned ready executing blocked validating paused -> cancelled : user_cancelled cancel ! warning
    """,
    and_all_of=WORKSTREAM,
)
PHASE = table(
    "docs/spec/phase.md",
    "declared open frozen",
    "",
    """
    declared -> open : open thaw
    declared -> frozen : begin_frozen freeze ! warning
    open -> frozen : freeze ! warning
    frozen -> open : thaw
    """,
)
TASK = table(
    "docs/spec/task.md",
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
    "VERSION-6",
    "",
    "",
    """
    queued -> blocked ! warning
    running pending queued blocked validating retrying -> cancelled : user_cancelled cancel ! warning
    """,
    and_all_of=TASK,
)
WORKER = table(
    "docs/spec/worker.md",
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
    "VERSION-6",
    "suspended",
    "",
    """
    idle -> suspended ! warning
    suspended -> idle ! warning
    initializing -> shutdown : shutdown_requested
    suspended -> shutdown : shutdown_requested max_timeout_exceeded
    """,
    and_all_of=WORKER,
)
UET_WORKER = table(
    "docs/spec/worker.md, UET-2",
    "SPAWNING IDLE BUSY DRAINING TERMINATED",
    "TERMINATED",
    """
    SPAWNING BUSY -> IDLE
    SPAWNING -> TERMINATED : spawn_failed shutdown_requested ! error
    BUSY -> TERMINATED ! error
    IDLE -> BUSY
    IDLE -> TERMINATED : shutdown_requested worker_crashed
    BUSY -> DRAINING
    DRAINING -> TERMINATED : task_completed worker_crashed
    """,
)
REGRESSION = table(
    "docs/spec/regression.md",
    "searching proposed rolling_back rolled_back unexplained rejected failed",
    "rolled_back unexplained rejected failed",
    """
    searching -> proposed : culprit_found ! error
    searching -> rolling_back : roll_back_allowed ! error
    searching -> unexplained : nothing_found ! warning
    proposed -> rolling_back : approve ! warning
    proposed -> rejected : reject expire ! warning
    rolling_back -> rolled_back : roll_back_succeeded ! critical
    rolling_back -> failed : roll_back_failed ! error
    """,
)
PATCH_LEDGER = table(
    "docs/spec/patch.md",
    "created validated queued applied apply_failed verified committed rolled_back quarantined dropped",
    "committed rolled_back quarantined dropped",
    """
    created -> validated
    created validated applied apply_failed -> quarantined ! warning
    validated apply_failed -> queued
    queued -> applied
    queued -> apply_failed ! warning
    applied -> verified
    apply_failed quarantined -> dropped ! warning
    verified -> committed
    committed -> rolled_back ! critical
    """,
)
PATCH_LEDGER_1_1 = table("PATCH-9", "", "", "verified -> quarantined ! warning", and_all_of=PATCH_LEDGER)
TEST_GATE = table(
    "docs/spec/gate.md",
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
TEST_GATE_1_1 = table(
    "VERSION-6",
    "CANCELLED",
    "CANCELLED",
    """
    PENDING RUNNING -> FAILED : gate_failed ! error
    RUNNING -> FAILED : gate_failed timeout_exceeded ! error
    PENDING BLOCKED RUNNING -> CANCELLED ! warning
    """,
    and_all_of=TEST_GATE,
)
CIRCUIT_BREAKER = table(
    "docs/spec/breaker.md",
    "CLOSED OPEN HALF_OPEN",
    "",
    """
    CLOSED -> OPEN : failure_threshold_exceeded ! error
    OPEN -> HALF_OPEN : cooldown_expires
    HALF_OPEN -> CLOSED : success ! warning
    HALF_OPEN -> OPEN : failure ! error
    """,
)
