"""The library's measured traps that would bite us (MACHINE-1, MACHINE-2, MACHINE-4), each kept away."""

import threading
import time
from itertools import product

import pytest
from transitions import MachineError

from interlock.workflows.catalogue import catalogue
from interlock.workflows.decide import Probe, decide, machine_of
from interlock.workflows.definition import Definition
from interlock.workflows.guard_context import Case
from interlock.workflows.outcomes import Applied, Rejected

definitions = list(catalogue())
every = pytest.mark.parametrize("definition", definitions, ids=lambda each: each.type)
STORY = catalogue().get("story")


@every
def test_one_machine_serves_a_definition_for_ever(definition: Definition) -> None:
    assert machine_of(definition) is machine_of(definition)
    assert machine_of(definition).models == []


@every
def test_no_queue_is_shared_between_threads(definition: Definition) -> None:
    assert machine_of(definition).has_queue is False


@every
def test_there_are_no_triggers_but_those_declared(definition: Definition) -> None:
    assert set(machine_of(definition).events) == set(definition.triggers)  # auto_transitions would add to_*


@every
def test_an_invalid_trigger_is_never_ignored_silently(definition: Definition) -> None:
    machine = machine_of(definition)
    assert machine.ignore_invalid_triggers is False
    for state, trigger in product(definition.terminal, definition.triggers):
        if (trigger, state) in definition.moves:
            continue  # an exception (POLICY-6); test_move_tables has those there are
        with pytest.raises(MachineError):
            machine.events[trigger].trigger(Probe(state), case=None)


@every
def test_no_source_is_everything(definition: Definition) -> None:
    for move in definition.transitions:
        assert set(move.sources) <= set(definition.states)
        assert move.exceptional or not set(move.sources) & definition.terminal


def test_a_false_condition_surfaces_though_the_library_returns_a_silent_false() -> None:
    asked = Case(state="review", version=1, context={}, trigger="approve", by="agent")
    probe = Probe("review")
    assert machine_of(STORY).events["approve"].trigger(probe, case=asked) is False
    assert probe.state == "review"
    outcome = decide(STORY, asked)
    assert isinstance(outcome, Rejected)
    assert outcome.reason["missing"] == ["pull_request_merged"]


def test_threads_that_decide_at_once_each_get_their_own_answer() -> None:
    wrong: list[object] = []

    def decide_many(trigger: str, source: str, dest: str) -> None:
        for _ in range(300):
            outcome = decide(STORY, Case(state=source, version=1, context={}, trigger=trigger, by="agent"))
            if not isinstance(outcome, Applied) or outcome.dest != dest:
                wrong.append(outcome)

    moves = [
        ("design_complete", "analysis", "design"),
        ("block", "testing", "blocked"),
        ("tests_pass", "testing", "done"),
    ]
    threads = [threading.Thread(target=decide_many, args=move) for move in moves * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_deciding_costs_microseconds_not_a_machine() -> None:
    asked = Case(state="analysis", version=1, context={}, trigger="design_complete", by="agent")
    decide(STORY, asked)
    began = time.process_time()
    for _ in range(1_000):
        decide(STORY, asked)
    assert (time.process_time() - began) / 1_000 < 200e-6  # about 10 µs; a Machine each would cost 290 and more
