"""A job and the workers it is given; a job may have children, five levels deep (seed 002, section 2, and ruling 8).

SUBMITTED → PENDING → RUNNING → COMPLETED | FAILED
SUBMITTED, PENDING, RUNNING → CANCELED
"""

from workflows.definition import Definition, Field, Link, T
from workflows.fields import name

DEEPEST = 5
MOST_WORKERS = 10

JOB = Definition(
    type="job",
    version="1.0.0",
    summary="A job, from submitted to its end (MVP, section 2).",
    states=("SUBMITTED", "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELED"),
    initial="SUBMITTED",
    terminal=frozenset({"COMPLETED", "FAILED", "CANCELED"}),
    transitions=(
        T("validate", "SUBMITTED", "PENDING"),
        T("allocate_resources", "PENDING", "RUNNING"),
        T("success", "RUNNING", "COMPLETED"),
        T("error", "RUNNING", "FAILED", severity="error"),
        T("cancel", ("SUBMITTED", "PENDING", "RUNNING"), "CANCELED", severity="warning"),
    ),
    links=(
        Link("parent", type="job", context_key="parent_job_id", inverse="children"),
        Link("retry_of", type="job", context_key="retry_of", inverse="retried_by"),
    ),
    fields=(
        Field(
            "depth",
            lambda value: type(value) is int and 0 <= value <= DEEPEST,
            f"a whole number from 0 to {DEEPEST}",
            required=True,
        ),
        Field(
            "worker_count",
            lambda value: type(value) is int and 1 <= value <= MOST_WORKERS,
            f"a whole number from 1 to {MOST_WORKERS}",
        ),
        Field("parent_job_id", lambda value: value is None or name(value), "the entity id or UUID of a job"),
        Field("retry_of", name, "the entity id or UUID of the job it is tried again for"),
    ),
)
