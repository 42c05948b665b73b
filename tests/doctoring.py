"""One check of the doctor: all of them together wait up to two seconds for Celery's nodes, and look at everything."""

from interlock.workers.operations.checks.finding import Finding
from interlock.workers.operations.doctor import CHECKS
from interlock.workers.runtime import Runtime


def examined(runtime: Runtime, check: str, *, by: str = "") -> list[Finding]:
    """The doctor's findings of one name; `by`: the check that finds them, if it has another name."""
    return [each for each in dict(CHECKS)[by or check](runtime) if each.check == check]
