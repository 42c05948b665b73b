"""A test gate: a command that must pass before what depends on it goes on (SSOT 2.3).

PENDING → RUNNING → PASSED | FAILED
PENDING ⇄ BLOCKED

SSOT 2.3.4 gives its triggers in words; their names are ours. A result never changes: a gate is run again as a new one,
linked by `retry_of` (ruling 1). What runs the command ends it when its `timeout_sec` is over and says `gate_failed`;
so it does when its attempts at running it are used up (exit code 70).
"""

from workflows.definition import Definition, Effect, Field, Link, T
from workflows.fields import name
from workflows.orchestration.evidence import exit_code_expected, exit_code_given
from workflows.orchestration.fields import DEPENDS_ON, EXIT_CODES, NAME_SAYS, RETRY_OF, TIMEOUT, uuid
from workflows.orchestration.guards import gate_dependencies_passed, gate_dependency_failed

RUN_GATE = Effect("run_gate", failed="gate_failed")
GATE_TYPES = ("LINT", "UNIT", "INTEGRATION", "SECURITY")

TEST_GATE = Definition(
    type="test_gate",
    version="1.0.0",
    summary="A test gate, from pending to passed or failed (SSOT 2.3).",
    states=("PENDING", "RUNNING", "PASSED", "FAILED", "BLOCKED"),
    initial="PENDING",
    terminal=frozenset({"PASSED", "FAILED"}),
    order=(
        (
            "PENDING",
            "BLOCKED",
        ),
        ("RUNNING",),
        (
            "PASSED",
            "FAILED",
        ),
    ),
    transitions=(
        T("gate_started", "PENDING", "RUNNING", when=(gate_dependencies_passed,), effects=(RUN_GATE,)),
        T("dependency_failed", "PENDING", "BLOCKED", when=(gate_dependency_failed,), severity="warning"),
        T("gate_passed", "RUNNING", "PASSED", when=(exit_code_given, exit_code_expected)),
        T("gate_failed", "RUNNING", "FAILED", when=(exit_code_given,), severity="error"),
        T("dependency_passed", "BLOCKED", "PENDING", when=(gate_dependencies_passed,)),
    ),
    links=(
        Link("depends_on", type="test_gate", context_key="depends_on", inverse="dependents"),
        Link("retry_of", type="test_gate", context_key="retry_of", inverse="retried_by"),
    ),
    fields=(
        Field("gate_type", lambda value: value in GATE_TYPES, f"one of {', '.join(GATE_TYPES)}", required=True),
        Field("command", lambda value: bool(value) and isinstance(value, str | list), "a command", required=True),
        EXIT_CODES,
        TIMEOUT,
        DEPENDS_ON,
        Field("phase_id", name, NAME_SAYS),
        Field("workstream_id", uuid, "the UUID of its workstream"),
        RETRY_OF,
    ),
)
