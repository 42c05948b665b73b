"""`decide`: deciding a trigger, which is pure: no database, no message, no clock."""

import time

from bench.effort import Effort
from bench.finding import Finding
from bench.progress import Rounds
from bench.stage import Stage
from interlock.workflows.decide import decide
from interlock.workflows.guard_context import Case
from interlock.workflows.machines.delivery.pr_review import PR_REVIEW
from interlock.workflows.outcomes import Applied


def measure(_stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Microseconds per decision: a plain move, and one with a guard."""
    plain = Case("reviewing", 1, {}, "request_changes", "bench")
    guarded = Case("reviewing", 1, {"author": "ann"}, "approve", "bob")
    figures = [(_microseconds(plain, effort.decisions), _microseconds(guarded, effort.decisions)) for _ in rounds]
    moves, approvals = zip(*figures, strict=True)
    return [
        Finding("decide", "one pure decision", "µs", moves),
        Finding("decide.guard", "one pure decision with a guard", "µs", approvals),
    ]


def _microseconds(case: Case, times: int) -> float:
    if not isinstance(decide(PR_REVIEW, case), Applied):
        raise RuntimeError(f"{case.trigger} should be legal")
    began = time.perf_counter()
    for _ in range(times):
        decide(PR_REVIEW, case)
    return (time.perf_counter() - began) / times * 1e6
