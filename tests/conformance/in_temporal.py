"""Plays sequences in the Temporal form, without a server: on the SDK's own workflow instances."""

from collections.abc import Iterator
from collections.abc import Sequence as Listed
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from itertools import groupby
from pathlib import Path
from typing import Any

from interlock.workflows.definition import Definition
from interlock.workflows.forms.forms import FORMS
from interlock.workflows.forms.temporal_values import FactsFound, LinkedWorkflow, TemporalFiring, TemporalStart
from tests.conformance.sequences import Answer, Sequence, Step
from tests.conformance.temporal_instance import TemporalInstanceRun

REPLAYED = 10  # one of so many sequences is replayed
SETTLED = {True: "granted", False: "refused"}


class OnTemporal:
    """The exported workers in a directory. Guards are run by the workflows themselves, on the facts of each step."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def play(self, played: Listed[Sequence]) -> Iterator[tuple[Answer, ...]]:
        """The answers to each sequence; those of a definition stand together."""
        with ThreadPoolExecutor(max_workers=1) as thread:  # an instance is an event loop: this thread may have one
            for definition, group in groupby(played, lambda each: each.definition):
                machine = exported(definition, self._directory).WORKFLOWS[0]
                for each in group:
                    yield thread.submit(_play, machine, each).result()


def exported(definition: Definition, directory: Path) -> Any:
    """The module that is exported of a definition."""
    form = FORMS["temporal"]
    path = directory / form.file_name(definition)
    path.write_text(form.write(definition), encoding="utf-8")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _play(machine: type, one: Sequence) -> tuple[Answer, ...]:
    return play_on(machine, one, TemporalStart(context=dict(one.context)))


def play_on(machine: type, one: Sequence, start: TemporalStart, begin: int = 0) -> tuple[Answer, ...]:
    """The answers to a sequence's steps from one on, by a workflow with this input. Called in a thread of its own."""
    now: list[Step] = []
    run = TemporalInstanceRun(machine, start, lambda: _facts(now[-1]))
    answers = []
    for step, expected in list(zip(one.steps, one.answers, strict=True))[begin:]:
        now.append(step)
        answers.append(_answer(run, one.definition, step, expected))
    if not run.ended:
        run.remove()
    assert one.seed % REPLAYED or run.replays_alike(), f"seed {one.seed} is not replayed alike"
    return tuple(answers)


def _answer(run: TemporalInstanceRun, definition: Definition, step: Step, expected: Answer) -> Answer:
    if run.ended:  # a server refuses updates to it, and asks the workflow nothing
        before = Answer("rejected", expected.state, expected.code, expected.missing, expected.legal, expected.timer)
        return before if expected.status in ("rejected", "superseded") else Answer("ended", "")
    if step.kind == "fire":
        _, said = run.update(TemporalFiring(step.trigger, step.by, step.authority, dict(step.metadata)))
    elif step.kind == "elapse":
        run.elapse()
        said = run.show()["last"]
    else:
        run.end_child(f"instance:{step.trigger}:{step.at_version}", SETTLED[step.granted])
        said = run.show()["last"]
    shown = run.show()
    timer = definition.deadlines[shown["state"]].trigger if shown["due_at"] is not None else None
    legal = tuple(said.get("legal") or shown["legal"]) if said["status"] == "rejected" else ()
    return Answer(said["status"], shown["state"], said.get("code"), tuple(said.get("missing", ())), legal, timer)


def _facts(step: Step) -> FactsFound:
    linked = {role: [_linked(each) for each in found] for role, found in step.linked.items()}
    return FactsFound(linked, _linked(step.named) if step.named else None, dict(step.row))


def _linked(each: Any) -> LinkedWorkflow:
    workflow_id = f"{each.type}/{each.entity_id}"
    return LinkedWorkflow(each.type, each.entity_id, each.state, str(each.id) if each.id else None, workflow_id)
