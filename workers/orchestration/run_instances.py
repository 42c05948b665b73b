"""The members of a run, ready to be born: each with its definition, name, id and context, checked."""

from collections.abc import Iterator
from uuid import UUID

from workers import firing
from workers.births import Birth
from workers.breakers import configuration
from workers.orchestration.contexts import Context, Contexts
from workers.orchestration.terms import with_terms
from workers.runtime import Runtime
from workflows.errors import BadInput


def members(runtime: Runtime, contexts: Contexts, *, by: str, priority: int) -> Iterator[Birth]:
    """The run, its workstreams, gates and tasks. In this order PostgreSQL can write their rows: each has its owner's.

    Raises:
        BadInput: a context is too large, or holds what JSON or PostgreSQL cannot.
    """
    plan, roster = contexts.plan, contexts.roster

    def born(type_: str, id_: UUID, name: str, context: Context) -> Birth:
        definition = runtime.catalogue.get(type_)
        complete = with_terms(runtime.settings, definition, context)
        return _checked(runtime, Birth(definition, name, plan.project_id, by, complete, id_))

    yield born("run", roster.run, roster.name, contexts.run(priority=priority))
    for each in plan.workstreams:
        yield born("workstream", roster.workstreams[each.id], roster.entity_id(each.id), contexts.workstream(each))
    for each in plan.workstreams:
        for gate in each.gates:
            name = f"{each.id}/{gate.id}"
            yield born("test_gate", roster.gates[name], roster.entity_id(name), contexts.gate(each.id, gate))
    for each in plan.workstreams:
        for task in each.tasks:
            name = f"{each.id}/{task.id}"
            yield born("task", roster.tasks[name], roster.entity_id(name), contexts.task(each.id, task))


def breakers(runtime: Runtime, contexts: Contexts, *, by: str) -> Iterator[Birth]:
    """The circuit breakers of the plan's tools, in the same order for all: two submissions never wait in a circle."""
    definition, project_id = runtime.catalogue.get("circuit_breaker"), contexts.plan.project_id
    for name, tool in sorted(contexts.plan.tools.items()):
        context = {"tool_id": name} | configuration(runtime.settings, tool.model_dump())
        yield _checked(runtime, Birth(definition, name, project_id, by, context))


def _checked(runtime: Runtime, birth: Birth) -> Birth:
    what = f"{birth.definition.type} {birth.entity_id}"
    firing.checked(f"the context of {what}", birth.context, runtime.settings.context_limit_bytes)
    if wrong := birth.definition.wrong_fields(birth.context):
        raise BadInput(f"the context of {what}: {'; '.join(wrong)}")
    return birth
