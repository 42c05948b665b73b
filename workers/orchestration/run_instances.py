"""The instances of a run, checked and ready to be created: each with its definition, name, id and context."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from interlock.db.orchestration.commands import CommandRow
from interlock.workers.circuit_breakers import configuration
from interlock.workers.engine.creation import Birth, with_terms
from interlock.workers.orchestration.contexts import Context, Contexts
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.input import limits


def members(runtime: Runtime, contexts: Contexts, *, by: str, priority: int) -> Iterator[Birth]:
    """The run, its workstreams, gates and tasks. Owners come first, as PostgreSQL's foreign keys need them.

    Raises:
        BadInput: a context is too large, or holds values that JSON or PostgreSQL cannot store.
    """
    plan, ids = contexts.plan, contexts.ids

    def born(type_: str, id_: UUID, name: str, context: Context) -> Birth:
        definition = runtime.catalogue.get(type_)
        complete = with_terms(runtime.settings, definition, context)
        return _checked(runtime, Birth(definition, name, contexts.project, by, complete, id_))

    yield born("run", ids.run, ids.name, contexts.run(priority=priority))
    for each in plan.workstreams:
        yield born("workstream", ids.workstreams[each.id], ids.entity_id(each.id), contexts.workstream(each))
    for each in plan.workstreams:
        for gate in each.gates:
            name = f"{each.id}/{gate.id}"
            yield born("test_gate", ids.gates[name], ids.entity_id(name), contexts.gate(each.id, gate))
    for each in plan.workstreams:
        for task in each.tasks:
            name = f"{each.id}/{task.id}"
            yield born("task", ids.tasks[name], ids.entity_id(name), contexts.task(each.id, task))


def phases(runtime: Runtime, contexts: Contexts, *, by: str) -> list[Birth]:
    """The phases that the plan declares, sorted by name: two submissions then cannot deadlock."""
    definition, project = runtime.catalogue.get("phase"), contexts.project
    return [_checked(runtime, Birth(definition, name, project, by, {})) for name in sorted(contexts.plan.phases)]


def commands(runtime: Runtime, contexts: Contexts, born: Sequence[Birth]) -> dict[UUID, CommandRow]:
    """The commands of the instances, with the timeouts of their contexts. Raises as `members`."""
    members, wanted = {birth.id: birth for birth in born}, contexts.commands()
    for each, row in wanted.items():
        _require_bounded(runtime, f"what {members[each].entity_id} runs", row.columns)
    return {each: replace(row, timeout_sec=members[each].context.get("timeout_sec")) for each, row in wanted.items()}


def breakers(runtime: Runtime, contexts: Contexts, *, by: str) -> Iterator[Birth]:
    """The circuit breakers of the plan's tools, sorted by name: two submissions then cannot deadlock."""
    definition, project = runtime.catalogue.get("circuit_breaker"), contexts.project
    for name, tool in sorted(contexts.plan.tools.items()):
        context = {"tool_id": name} | configuration(runtime.settings, tool.model_dump())
        yield _checked(runtime, Birth(definition, name, project, by, context))


def _checked(runtime: Runtime, birth: Birth) -> Birth:
    what = f"{birth.definition.type} {birth.entity_id}"
    _require_bounded(runtime, f"the context of {what}", birth.context)
    if wrong := birth.definition.wrong_fields(birth.context):
        raise BadInput(f"the context of {what}: {'; '.join(wrong)}")
    return birth


def _require_bounded(runtime: Runtime, what: str, part: Mapping[str, Any]) -> None:
    """Refuse a part of the plan that is too large. The plan has been checked as a whole."""
    if not limits.surely_fits(part, limit := runtime.settings.context_limit_bytes):
        limits.checked(what, part, limit)
