"""A test gate: a command that must pass before its dependents proceed (docs/spec/gate.md).

PENDING → RUNNING → PASSED | FAILED
PENDING ⇄ BLOCKED
1.1.0: PENDING → FAILED; every non-terminal state → CANCELLED

A result never changes: to run a gate again, a new one is created, linked by `retry_of` (GATE-7). The scheduler asks
for the effect `run_gate`; the node that takes it up fires `gate_started`. It stops the command after `timeout_sec` and
fires `gate_failed`. If no node reports in time, the deadline of `RUNNING` fires `timeout_exceeded`. The effect also
fires `gate_failed` (exit code 70) when its attempts are used up.

1.1.0: the command is not part of the context; it comes from the plan that was submitted.
"""

from dataclasses import replace

from interlock.workflows.definition import Deadline, Definition, Field, T
from interlock.workflows.fields import name
from interlock.workflows.machines.orchestration.fields import (
    DEPENDS_ON,
    EXIT_CODES,
    NAME_SAYS,
    RETRY_OF,
    TIMEOUT,
    WORKSTREAM_ID,
    depends_on,
    retry_of,
)
from interlock.workflows.machines.orchestration.link_guards import gate_dependencies_passed, gate_dependency_failed
from interlock.workflows.machines.orchestration.metadata_guards import exit_code_expected, exit_code_given

TIMEOUT_SECONDS = 1800.0  # GATE-4, of a gate that names no other
GRACE_SECONDS = 60.0  # for the node to end the command and report its output before the deadline does without
GATE_TYPES = ("LINT", "UNIT", "INTEGRATION", "SECURITY")

TEST_GATE_1_0 = Definition(
    type="test_gate",
    version="1.0.0",
    summary="A test gate, from pending to passed or failed.",
    order=(("PENDING", "BLOCKED"), ("RUNNING",), ("PASSED", "FAILED")),
    initial="PENDING",
    terminal=frozenset({"PASSED", "FAILED"}),
    by="machinery",
    transitions=(
        T("gate_started", "PENDING", "RUNNING", by="effect", when=(gate_dependencies_passed,)),
        T("dependency_failed", "PENDING", "BLOCKED", when=(gate_dependency_failed,), severity="warning"),
        T("gate_passed", "RUNNING", "PASSED", by="effect", when=(exit_code_given, exit_code_expected)),
        T("gate_failed", "RUNNING", "FAILED", by=("effect", "machinery"), when=(exit_code_given,), severity="error"),
        T("dependency_passed", "BLOCKED", "PENDING", when=(gate_dependencies_passed,)),
    ),
    links=(
        depends_on("test_gate"),
        retry_of("test_gate"),
    ),
    fields=(
        Field("gate_type", lambda value: value in GATE_TYPES, f"one of {', '.join(GATE_TYPES)}", required=True),
        Field("command", lambda value: bool(value) and isinstance(value, str | list), "a command", required=True),
        EXIT_CODES,
        TIMEOUT,
        DEPENDS_ON,
        Field("phase_id", name, NAME_SAYS),
        replace(WORKSTREAM_ID, required=False),
        RETRY_OF,
    ),
)

TEST_GATE_1_1 = replace(
    TEST_GATE_1_0,
    version="1.1.0",
    summary="A test gate, from pending to passed, failed or cancelled; what it runs comes with a plan.",
    terminal=frozenset({"PASSED", "FAILED", "CANCELLED"}),
    states=(),  # those of the order
    order=(("PENDING", "BLOCKED"), ("RUNNING",), ("PASSED", "FAILED", "CANCELLED")),
    transitions=(
        *TEST_GATE_1_0.transitions,
        T("gate_failed", "PENDING", "FAILED", by=("effect", "machinery"), when=(exit_code_given,), severity="error"),
        T("timeout_exceeded", "RUNNING", "FAILED", severity="error"),
        T("cancel", ("PENDING", "BLOCKED", "RUNNING"), "CANCELLED", severity="warning"),
    ),
    deadlines={
        "RUNNING": Deadline(
            TIMEOUT_SECONDS, "timeout_exceeded", context_key="timeout_sec", grace_seconds=GRACE_SECONDS
        ),
    },
    fields=tuple(each for each in TEST_GATE_1_0.fields if each.name != "command"),
)
