"""docs/leads-on.md, carried out: deadlines come, workers fall silent, leases end, and what `stuck` offers is done."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from docs.leads_on import ITS_EFFECTS, leads, useless
from interlock.workers.client.client import Client
from interlock.workers.operations.stuck.detector import Stuck
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import Definition
from tests.crewing import silence
from tests.driving import drain_all, make_due, swept
from tests.rights import grant
from tests.stuck import age, look, paste
from tests.walking import Walker

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]

SETTINGS = Settings.model_construct()
STUCK, SILENT, LEASE, DEADLINE = (
    "`interlock stuck` names it",
    "its heartbeats stop",
    "the lease of",
    "its deadline fires",
)
SLACK_SECONDS = 5.0
WAITING = [(each, state) for each in catalogue().newest.values() for state in each.states if state not in each.terminal]
BY_PEOPLE = [catalogue().get(each) for each in ("story", "sprint", "pr_review", "supervised_worker", "narrowing")]
LEASED = """
UPDATE effects e SET status = 'leased', leased_by = 'gone', token = token + 1, attempts = %s,
       lease_until = now() - interval '1 second'
  FROM workflow_instances i
 WHERE i.id = %s AND e.workflow_id = i.id AND e.version = i.version AND e.status = 'pending'"""


def answered(words: str, *but: str) -> Any:
    """A parameter for each state that has an answer with these words, except those of the types named.

    Those need a run around them: test_stuck_tasks, test_crew_silence and test_effect_kills have them.
    """
    found = [
        pytest.param(each, state, id=f"{each.type}-{state}")
        for each, state in WAITING
        if each.type not in but
        and f"{each.type}-{state}" not in but
        and any(words in lead.answer for lead in leads(each, state, SETTINGS))
    ]
    return pytest.mark.parametrize(("definition", "state"), found)


@pytest.fixture
def walker(runtime: Runtime, dba: Dba) -> Walker:
    return Walker(runtime, dba)


def within(definition: Definition, state: str, words: str) -> float:
    """The longest time of the answers with these words."""
    found = [lead.seconds for lead in leads(definition, state, SETTINGS) if words in lead.answer]
    return max(seconds for seconds in found if seconds is not None)


def listed(runtime: Runtime, instance: UUID) -> list[Stuck]:
    """What `stuck` says of an instance now."""
    return [each for each in look(runtime) if each.workflow_id == instance]


def newest_event(runtime: Runtime, instance: UUID) -> str:
    return str(Client(runtime).history(instance)[-1]["trigger"])


def sweep(runtime: Runtime, dba: Dba, name: str) -> None:
    """Run a sweep, though it may have run in this period, and apply what it fires."""
    dba.execute("DELETE FROM sweeps")
    swept(runtime, name)
    drain_all(runtime)


@answered(STUCK, "task-queued")
def test_what_waits_for_a_person_is_listed_once_its_time_is_over_and_not_before(
    walker: Walker, runtime: Runtime, dba: Dba, definition: Definition, state: str
) -> None:
    made, seconds = walker.at(definition, state), within(definition, state, STUCK)
    age(dba, made, seconds - SLACK_SECONDS)
    assert listed(runtime, made) == []
    age(dba, made, seconds + 1)
    (only,) = listed(runtime, made)
    assert useless(only.command, definition, state, str(made)) in ("", "only looks, and nothing else moves it")


@pytest.mark.parametrize("definition", BY_PEOPLE, ids=lambda each: each.type)
def test_whoever_does_what_is_offered_comes_to_an_end(
    walker: Walker, runtime: Runtime, dba: Dba, definition: Definition
) -> None:
    grant(Client(runtime), "ann")
    made = walker.born(definition)
    for _ in range(2 * len(definition.states)):
        age(dba, made, runtime.settings.stuck_seconds + 1)
        offer = listed(runtime, made)
        if not offer or "was refused: " in offer[0].reason:  # then a guard says what is missing
            break
        paste(runtime, offer[0].command, WHY="because")
    found = Client(runtime).show(made)["current_state"]
    assert found in definition.terminal | definition.resting or "must be merged" in offer[0].reason


@answered(SILENT, "task")
def test_who_falls_silent_is_missed_in_time(
    walker: Walker, runtime: Runtime, dba: Dba, definition: Definition, state: str
) -> None:
    made, seconds = walker.at(definition, state), within(definition, state, SILENT)
    silence(dba, made, seconds, f"{definition.type}s")
    sweep(runtime, dba, "heartbeats")
    assert any(f"`{newest_event(runtime, made)}`" in lead.answer for lead in leads(definition, state, SETTINGS))
    assert Client(runtime).show(made)["current_state"] != state


@answered(DEADLINE)
def test_a_deadline_leads_on_by_itself(
    walker: Walker, runtime: Runtime, dba: Dba, definition: Definition, state: str
) -> None:
    made = walker.at(definition, state)
    assert make_due(dba) > 0
    sweep(runtime, dba, "dispatch")
    assert newest_event(runtime, made) == definition.deadlines[state].trigger


@answered(LEASE, *ITS_EFFECTS)
def test_an_effect_whose_node_died_is_taken_by_another_and_ends_in_any_case(
    walker: Walker, runtime: Runtime, dba: Dba, definition: Definition, state: str
) -> None:
    made = walker.at(definition, state)
    assert dba.execute(LEASED, (1, made)).rowcount == 1
    sweep(runtime, dba, "leases")
    assert dba.execute(LEASED, (runtime.settings.max_attempts, made)).rowcount == 1, "nobody could take it"
    sweep(runtime, dba, "leases")
    assert Client(runtime).show(made)["current_state"] != state
