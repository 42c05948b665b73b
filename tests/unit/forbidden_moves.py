"""The moves that are forbidden by name: `source -> dest`, where `*` is any state at all."""

# RUN-6, WORKSTREAM-14, WORKER-11, WORKER-14, UET-5, UET-6, PATCH-5, GATE-7, SUPERVISED-2, JOB-4, LEGACY-4: each is
# illegal. `*` is any state at all.
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
    "deprecation": """
    announced -> removed
    undone -> *
    removed -> *
    """,
    "api_token": """
    revoked -> *
    expired -> *
    """,
    "operator_grant": """
    revoked -> *
    lapsed -> *
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
