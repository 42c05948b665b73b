"""Derive the next trigger of a workstream or a run from counts (docs/spec/derivation.md).

Pure: counts in, the name of a trigger (of version 1.1.0) or None out. None means that nothing is to be fired now; the
next move of a task, or a decision (to start, to validate, to resume), will change that. A workstream whose tasks have
all ended, and that is not validating or paused, always gets a trigger, so that nothing waits for ever.

A critical failure takes precedence (WORKSTREAM-3), even while other tasks are running or the workstream is paused.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkstreamCounts:
    """The input for a workstream: its state, its tasks by state, and its dependencies and patches.

    Attributes:
        state: the workstream's own state.
        pending … blocked: the number of its tasks in each state.
        critical_failures: the number of its failed tasks that are critical.
        quarantined_patches: the number of its patches in `quarantined`.
        unfinished_dependencies: workstreams it depends on that may still complete.
        skipped_dependencies: dependencies that were skipped.
        dead_dependencies: dependencies that failed or were cancelled.
        task_count: the minimum number of tasks it must have; None: no minimum.
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
        """Tasks that have started to run."""
        return self.running + self.validating + self.completed + self.failed + self.retrying

    @property
    def total(self) -> int:
        """All tasks."""
        return self.ended + self.pending + self.queued + self.running + self.validating + self.retrying + self.blocked


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The input for a run: its state, its workstreams by state, and the number of failed critical ones."""

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
        """All workstreams."""
        return self.ended + self.planned + self.ready + self.blocked + self.executing + self.validating + self.paused


TASK_COUNTS = tuple(
    name for name in WorkstreamCounts.__dataclass_fields__ if name not in ("state", "task_count")
)  # columns of `workstream_counts`
RUN_COUNTS = tuple(name for name in RunCounts.__dataclass_fields__ if name != "state")  # columns of `run_counts`


def workstream_trigger(counts: WorkstreamCounts) -> str | None:
    """The next trigger of a workstream, or None."""
    match counts.state:
        case "planned" | "blocked":
            return _waiting(counts)
        case "ready":
            return _ready(counts)
        case "executing":
            return _executing(counts)
        case "paused" if counts.critical_failures:
            return "critical_task_failed"
        case "validating" if counts.quarantined_patches:
            return "validation_failed"
    return None


def waits_for_tasks(counts: WorkstreamCounts) -> bool:
    """Whether a workstream waits for nothing but its open tasks, so that their counts are all that decides about it."""
    return counts.state == "executing" and workstream_trigger(counts) is None


def run_trigger(counts: RunCounts) -> str | None:
    """The next trigger of a run, or None. A critical failure ends it at once; else it waits for all workstreams."""
    if counts.state != "running":
        return None
    if counts.critical_failures:
        return "fail"
    if counts.ended < counts.total:
        return None
    return "complete" if counts.completed + counts.skipped == counts.total else "fail"


def _waiting(counts: WorkstreamCounts) -> str | None:
    if counts.dead_dependencies:  # takes precedence over a skipped dependency
        return "cancel"
    if counts.skipped_dependencies:
        return "skip"
    if counts.unfinished_dependencies:
        return "dependency_check_failed" if counts.state == "planned" else None
    if counts.state == "blocked":
        return "dependency_satisfied"
    # It starts with at least `task_count` tasks; it may have more, since tasks can be added while it waits.
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
    if counts.quarantined_patches:  # WORKSTREAM-9
        return "patch_set_aside"
    if counts.completed == counts.total:
        return "all_tasks_completed"
    return "tasks_lost" if counts.ended == counts.total else None
