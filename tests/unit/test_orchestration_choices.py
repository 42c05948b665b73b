"""Where a trigger leads when what stands around an instance decides, and what that costs to look up."""

from dataclasses import replace
from typing import Any

import pytest

from interlock.workflows.catalogue import catalogue
from interlock.workflows.decide import decide
from interlock.workflows.definition import Definition
from interlock.workflows.guard_context import Linked
from interlock.workflows.outcomes import Applied, Rejected
from tests.unit.cases import decided, favourable

Facts = dict[str, Any]
NEWEST = {each.type: each for each in catalogue().newest.values()}

# (type, state, trigger), facts, and where it leads under them.
LED: list[tuple[str, str, str, Facts, str]] = [
    ("task", "pending", "scheduler_assigned", {"linked": {"gates": "PENDING"}}, "queued"),  # its own gates come later
    (
        "task",
        "pending",
        "dependency_check_failed",
        {"linked": {"depends_on": "completed", "blocked_by_gates": "FAILED"}},
        "blocked",
    ),
    (
        "task",
        "queued",
        "dependency_check_failed",
        {"linked": {"gates": "PASSED", "blocked_by_gates": "FAILED"}},
        "blocked",
    ),
    (
        "task",
        "running",
        "execution_completed",
        {"context": {"expected_exit_codes": [0, 5]}, "metadata": {"exit_code": 5}},
        "validating",
    ),
    ("task", "queued", "dependency_check_failed", {"linked": {"gates": "BLOCKED"}}, "blocked"),
    ("task", "running", "execution_failed", {"row": {"retry_count": 2}}, "retrying"),
    ("task", "running", "execution_failed", {"row": {"retry_count": 3}}, "failed"),
    ("task", "running", "execution_failed", {"row": {"max_retries": 0}}, "failed"),
    ("task", "running", "timeout_exceeded", {"row": {"retry_count": 2}}, "retrying"),
    ("task", "running", "timeout_exceeded", {"row": {"retry_count": 3}}, "failed"),
    ("task", "validating", "validation_passed", {"linked": {"patches": "committed"}}, "completed"),
    ("workstream", "planned", "all_tasks_created", {"context": {"task_count": 2}}, "ready"),
    ("workstream", "executing", "patch_set_aside", {"linked": {"patches": "dropped"}}, "failed"),
    ("workstream", "executing", "patch_set_aside", {"linked": {"patches": "rolled_back"}}, "failed"),
    ("workstream", "executing", "tasks_lost", {"row": {"critical_failures": 0, "completed_tasks": 0}}, "failed"),
    ("run", "running", "complete", {"row": {"completed_workstreams": 2, "skipped_workstreams": 0}}, "succeeded"),
    ("run", "running", "fail", {"row": {"critical_failures": 0, "completed_workstreams": 0}}, "failed"),
    ("worker", "suspended", "shutdown_requested", {"row": {"current_load": 0}}, "shutdown"),
    ("worker", "idle", "max_timeout_exceeded", {}, "shutdown"),
    (
        "worker",
        "idle",
        "task_assigned",
        {"context": {"capabilities": ["git", "rust"]}, "metadata": {"required_capabilities": ["rust"]}},
        "busy",
    ),
    ("patch_ledger", "apply_failed", "retry_apply", {"row": {"apply_retries": 2}}, "queued"),
    ("test_gate", "PENDING", "dependency_failed", {"linked": {"depends_on": "BLOCKED"}}, "BLOCKED"),
    (
        "test_gate",
        "RUNNING",
        "gate_passed",
        {"context": {"expected_exit_codes": [3]}, "metadata": {"exit_code": 3}},
        "PASSED",
    ),
    ("test_gate", "RUNNING", "gate_failed", {"metadata": {"exit_code": -9}}, "FAILED"),
]


@pytest.mark.parametrize(
    ("type_", "state", "trigger", "facts", "dest"),
    [pytest.param(*each, id=f"{each[0]} {each[2]} {number}") for number, each in enumerate(LED)],
)
def test_facts_decide_where_a_trigger_leads(type_: str, state: str, trigger: str, facts: Facts, dest: str) -> None:
    outcome = decided(type_, state, trigger, facts)
    assert isinstance(outcome, Applied)
    assert outcome.dest == dest


def test_one_dependency_that_is_not_met_among_many_is_enough() -> None:
    task = NEWEST["task"]
    case = favourable(task, "pending", "scheduler_assigned")
    mixed = {"depends_on": (*case.linked["depends_on"], Linked("task", "3", "retrying"))}
    assert isinstance(decide(task, replace(case, linked=mixed)), Rejected)


@pytest.mark.parametrize(
    ("type_", "state", "trigger"),
    [
        ("task", "pending", "scheduler_assigned"),
        ("task", "validating", "validation_passed"),
        ("workstream", "blocked", "dependency_satisfied"),
        ("test_gate", "PENDING", "gate_started"),
    ],
)
def test_an_instance_with_nothing_around_it_waits_for_nothing(type_: str, state: str, trigger: str) -> None:
    alone = replace(favourable(NEWEST[type_], state, trigger), linked={})
    assert isinstance(decide(NEWEST[type_], alone), Applied)


@pytest.mark.parametrize("definition", list(NEWEST.values()), ids=list(NEWEST))
def test_only_triggers_whose_guards_look_around_cost_a_look(definition: Definition) -> None:
    for move in definition.transitions:
        if not move.when and not move.approval and move.dest not in definition.deadlines:
            others = [each for each in definition.transitions if each.trigger == move.trigger and each.when]
            assert definition.needs[move.trigger] == frozenset().union(
                *(guard.needs for each in others for guard in each.when)
            )


class Read(dict[str, tuple[Linked, ...]]):
    """Linked instances in every role; remembers which roles were read."""

    def __init__(self) -> None:
        super().__init__()
        self.roles: set[str] = set()

    def get(self, role: str, _: Any = ()) -> Any:
        """Nothing stands in the way in any role, so that a guard goes on to the next."""
        self.roles.add(role)
        return ()


@pytest.mark.parametrize("definition", list(NEWEST.values()), ids=list(NEWEST))
def test_guards_read_those_roles_of_links_that_they_say(definition: Definition) -> None:
    for move in definition.transitions:
        for guard in (each for each in move.when if each.roles):
            read = Read()
            guard.holds(replace(favourable(definition, move.sources[0], move.trigger), linked=read))
            assert "linked" in guard.needs
            assert read.roles == set(guard.roles)
            assert definition.roles[move.trigger] is None or read.roles <= (definition.roles[move.trigger] or set())


def test_a_trigger_that_changes_a_link_or_has_a_guard_of_unknown_roles_gets_all_links() -> None:
    story, sprint = NEWEST["story"], NEWEST["sprint"]
    assert {story.roles[move.trigger] for move in story.transitions if move.relink} == {None}
    assert None in {sprint.roles[move.trigger] for move in sprint.transitions if "linked" in sprint.needs[move.trigger]}


def test_a_task_of_ten_thousand_is_never_looked_up_through_its_workstream() -> None:
    for version in ("1.0.0", "1.1.0"):
        assert all(link.inverse != "tasks" for link in catalogue().get("task", version).links)
