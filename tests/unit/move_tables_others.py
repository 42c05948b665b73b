"""The supervision's machines and those of the older lineage, written out by hand."""

from tests.unit.move_table import table

SUPERVISED_WORKER = table(
    "docs/spec/supervision.md",
    "IDLE RUNNING PAUSED COMPLETED FAILED TERMINATED",
    "COMPLETED FAILED TERMINATED",
    """
    IDLE -> RUNNING : start_task
    RUNNING -> PAUSED : pause ! warning
    PAUSED -> RUNNING : resume ! warning
    RUNNING -> COMPLETED : complete_tasks
    RUNNING -> FAILED : error_unrecoverable ! error
    IDLE RUNNING PAUSED -> TERMINATED : terminate ! warning
    """,
)
OPERATOR_GRANT = table(
    "docs/spec/governance.md",
    "proposed active revoked lapsed",
    "revoked lapsed",
    """
    proposed -> active : grant
    active -> revoked : revoke ! warning
    active -> lapsed : lapse
    """,
)
API_TOKEN = table(
    "docs/spec/token.md",
    "proposed active revoked expired",
    "revoked expired",
    """
    proposed -> active : issue
    active -> revoked : revoke ! warning
    active -> expired : expire
    """,
)
DEPRECATION = table(
    "docs/spec/governance.md",
    "proposed announced removal_proposed undone removed",
    "undone removed",
    """
    proposed -> announced : announce
    announced -> undone : undo ! warning
    announced -> removal_proposed : propose_removal
    removal_proposed -> announced : withdraw_removal ! warning
    removal_proposed -> removed : approve_removal
    """,
)
JOB = table(
    "docs/spec/supervision.md",
    "SUBMITTED PENDING RUNNING COMPLETED FAILED CANCELED",
    "COMPLETED FAILED CANCELED",
    """
    SUBMITTED -> PENDING : validate
    SUBMITTED PENDING -> CANCELED : cancel ! warning
    RUNNING -> CANCELED : cancel timeout_exceeded ! warning
    PENDING -> RUNNING : allocate_resources
    RUNNING -> COMPLETED : success
    RUNNING -> FAILED : error ! error
    """,
)
REFUSAL_LOG = table(
    "docs/spec/refusals.md",
    "open",
    "",
    """
    open -> open : refuse ! warning
    """,
)
NARROWING = table(
    "docs/spec/narrowing.md",
    "proposed in_force lifted",
    "lifted",
    """
    proposed -> in_force : enforce ! warning
    proposed in_force -> lifted : lift ! warning
    """,
)
LIMIT = table(
    "docs/spec/limit.md",
    "proposed in_force removed",
    "removed",
    """
    proposed -> in_force : enforce ! warning
    proposed in_force -> removed : remove ! warning
    """,
)
HANDOVER = table(
    "docs/spec/handover.md",
    "proposed frozen started returned",
    "started returned",
    """
    proposed -> frozen : freeze ! warning
    frozen -> started : confirm ! warning
    frozen -> returned : give_back ! warning
    """,
)
BUDGET = table(
    "docs/spec/brake.md",
    "proposed in_force removed",
    "removed",
    """
    proposed -> in_force : enforce ! warning
    proposed in_force -> removed : remove ! warning
    """,
)
BRAKE = table(
    "docs/spec/brake.md",
    "reached on released",
    "released",
    """
    reached -> on : announce ! error
    reached on -> released : release ! warning
    """,
)
SCHEDULE = table(
    "docs/spec/schedule.md",
    "active paused ended",
    "ended",
    """
    active -> paused : pause
    paused -> active : resume
    active paused -> ended : end stop lapse ! warning
    active -> active : firing_failed ! warning
    """,
)
SUBSCRIPTION = table(
    "docs/spec/subscription.md",
    "proposed active paused removed",
    "removed",
    """
    proposed -> active : activate ! warning
    active -> paused : pause ! warning
    paused -> active : resume ! warning
    active -> active : replay skip ! warning
    paused -> paused : replay skip ! warning
    proposed active paused -> removed : remove ! warning
    """,
)
OLDEST_WORKSTREAM = table(
    "docs/spec/legacy.md",
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
    "docs/spec/legacy.md",
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
    "docs/spec/legacy.md",
    "planned ready executing validating completed failed cancelled",
    "completed failed cancelled",
    """
    planned -> ready : all_tasks_created
    ready -> executing : first_task_started
    executing -> validating : all_tasks_completed
    executing -> failed : critical_task_failed ! critical
    validating -> completed : validation_passed
    validating -> failed : validation_failed ! error
    planned ready executing -> cancelled : user_cancelled ! warning
    """,
)
OLDER_TASK = table(
    "docs/spec/legacy.md",
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
