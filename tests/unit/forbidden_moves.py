"""The moves that the seeds forbid in so many words, typed off them: `source -> dest`, where `*` is any state at all."""

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
