"""Which trigger a workstream, a run or a task is owed by those around it (SSOT 1.3.4, 3.2, 3.3, rulings 4 and 5).

Pure: counts go in, the name of a trigger (of version 1.1.0) or None comes out. None means that nothing is owed now: the
next move of a task, or somebody's decision (to start, to validate, to resume), will change that. A workstream all of
whose tasks have ended, and that is not validating or paused, is always owed something: nothing waits for ever.

A critical failure comes before all else (SSOT 1.3.7, invariant 3), though 1.3.4 looks for running tasks first.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkstreamCounts:
    """Where a workstream stands, its tasks by state, and what else decides about it.

    Attributes:
        state: the workstream's own.
        pending … blocked: its tasks in each state.
        critical_failures: those of its failed tasks that are critical.
        quarantined_patches: its patches in `quarantined`.
        unfinished_dependencies: workstreams it depends on that may still complete.
        skipped_dependencies, dead_dependencies: those that were skipped; those that failed or were cancelled.
        task_count: how many tasks it is to have at least; None: as many as there are.
    """

    state: str
    pending: int = 0
    queued: int = 0
    running: int = 0
    validating: int = 0
    completed: int = 0
    failed: int = 0
    retrying: int = 0
    cancelled: int = 0
    blocked: int = 0
    critical_failures: int = 0
    quarantined_patches: int = 0
    unfinished_dependencies: int = 0
    skipped_dependencies: int = 0
    dead_dependencies: int = 0
    task_count: int | None = None

    @property
    def ended(self) -> int:
        """Tasks in a terminal state."""
        return self.completed + self.failed + self.cancelled

    @property
    def started(self) -> int:
        """Tasks that ran, or are running."""
        return self.running + self.validating + self.completed + self.failed + self.retrying

    @property
    def total(self) -> int:
        """Tasks there are."""
        return self.ended + self.pending + self.queued + self.running + self.validating + self.retrying + self.blocked


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Where a run stands, its workstreams by state, and how many critical ones among them have failed."""

    state: str
    planned: int = 0
    ready: int = 0
    blocked: int = 0
    executing: int = 0
    validating: int = 0
    paused: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0
    critical_failures: int = 0

    @property
    def ended(self) -> int:
        """Workstreams in a terminal state."""
        return self.completed + self.failed + self.cancelled + self.skipped

    @property
    def total(self) -> int:
        """Workstreams there are."""
        return self.ended + self.planned + self.ready + self.blocked + self.executing + self.validating + self.paused


def workstream_trigger(counts: WorkstreamCounts) -> str | None:
    """The trigger a workstream is owed, or None."""
    match counts.state:
        case "planned" | "blocked":
            return _waiting(counts)
        case "ready":
            return _ready(counts)
        case "executing":
            return _executing(counts)
        case "validating" if counts.quarantined_patches:
            return "validation_failed"
    return None


def run_trigger(counts: RunCounts) -> str | None:
    """The trigger a run is owed, or None: critical failures end it at once, otherwise it waits for every workstream."""
    if counts.state != "running":
        return None
    if counts.critical_failures:
        return "fail"
    if counts.ended < counts.total:
        return None
    return "complete" if counts.completed + counts.skipped == counts.total else "fail"


def dead_task_trigger(state: str, *, dead_dependencies: int) -> str | None:
    """The trigger a task is owed by dependencies that ended without completing, or None.

    Args:
        state: the task's own. Only one that waits for its dependencies can be held up by them.
        dead_dependencies: tasks it depends on that failed or were cancelled (ruling 5: they never will complete).
    """
    return "cancel" if dead_dependencies and state in ("pending", "blocked") else None


def _waiting(counts: WorkstreamCounts) -> str | None:
    if counts.dead_dependencies:  # of a skipped and a failed one, the failed one is told
        return "cancel"
    if counts.skipped_dependencies:
        return "skip"
    if counts.unfinished_dependencies:
        return "dependency_check_failed" if counts.state == "planned" else None
    if counts.state == "blocked":
        return "dependency_satisfied"
    # More than it was to have: one was added while it waited. It waits for the missing, never for the surplus.
    return "all_tasks_created" if counts.total >= (counts.task_count or 0) else None


def _ready(counts: WorkstreamCounts) -> str | None:
    if counts.started:
        return "first_task_started"
    if counts.total == 0:
        return "skip"
    return "cancel" if counts.cancelled == counts.total else None


def _executing(counts: WorkstreamCounts) -> str | None:
    if counts.critical_failures:
        return "critical_task_failed"
    if counts.quarantined_patches:  # SSOT 3.2.1, rule 2
        return "patch_set_aside"
    if counts.completed == counts.total:
        return "all_tasks_completed"
    return "tasks_lost" if counts.ended == counts.total else None
