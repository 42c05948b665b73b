"""Check that a plan's phases exist and that their workstreams have the gates that they require."""

from collections.abc import Iterator

from interlock.workflows.plan.phases import DEFAULT
from interlock.workflows.plan.plan import Plan, Workstream
from interlock.workflows.plan.problems import FieldPath, UnlocatedProblem, quoted
from interlock.workflows.spelling import meant


def check_phases(plan: Plan) -> Iterator[UnlocatedProblem]:
    """Yield every error in a plan's phases (PHASE-2, PHASE-5).

    Args:
        plan: with its phases; its names are correct.
    """
    if plan.phase_id not in (known := {DEFAULT, *plan.phases}):
        yield _unknown(("phase_id",), plan.phase_id, known)
    final = plan.final_gates()
    for number, each in enumerate(plan.workstreams):
        if each.phase_id is not None and each.phase_id not in known:
            yield _unknown(("workstreams", number, "phase_id"), each.phase_id, known)
        if not each.skip:
            yield from _missing_gates(plan, each, number, final)


def _missing_gates(
    plan: Plan, workstream: Workstream, number: int, final: frozenset[str]
) -> Iterator[UnlocatedProblem]:
    phase = plan.phase_of(workstream)
    if (terms := plan.phases.get(phase)) is None:
        return
    types = {gate.type for gate in workstream.gates if f"{workstream.id}/{gate.id}" in final}
    for missing in sorted(set(terms.required_gates) - types):
        message = f"phase {quoted(phase)} requires a gate of type {missing} that judges the whole workstream"
        yield UnlocatedProblem(("workstreams", number, "gates"), message, "add one that no task or gate names")


def _unknown(path: FieldPath, written: str, known: set[str]) -> UnlocatedProblem:
    near = meant(written, known)
    listed = ", ".join(map(quoted, sorted(known)))
    hint = f"did you mean {quoted(near)}? " if near else ""
    return UnlocatedProblem(path, f"no phase {quoted(written)}", f"{hint}known phases: {listed}")
