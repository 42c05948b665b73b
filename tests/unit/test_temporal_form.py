"""The Temporal form beyond what random sequences play: effects, follow-ups, approvals, links, the sandbox, its host."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from interlock.workflows.catalogue import catalogue
from interlock.workflows.errors import InvalidDefinition
from interlock.workflows.forms.forms import FORMS
from interlock.workflows.forms.temporal_activities import activities
from interlock.workflows.forms.temporal_values import FactsFound, LinkedWorkflow, TemporalFiring, TemporalStart
from tests.conformance.in_temporal import exported
from tests.conformance.temporal_instance import TemporalInstanceRun
from tests.machines import ANNOUNCEMENT

PULL_REQUEST = catalogue().get("pr_review")
Run = Callable[..., Any]


@pytest.fixture
def thread() -> Iterator[Run]:
    """Calls a function in a thread without an event loop, as a worker does."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield lambda act, *arguments: executor.submit(act, *arguments).result()


def started(machine: Any, facts: FactsFound | None = None, **options: Any) -> TemporalInstanceRun:
    return TemporalInstanceRun(machine, options.pop("start", TemporalStart()), lambda: facts or FactsFound(), **options)


def fired(run: TemporalInstanceRun, trigger: str, by: str = "ann", authority: Any = "anyone") -> Any:
    return run.update(TemporalFiring(trigger, by, authority))


@pytest.mark.parametrize(("succeeds", "ends"), [(True, "announced"), (False, "unheard")])
def test_an_effects_outcome_is_told_by_its_trigger(thread: Run, tmp_path: Path, succeeds: bool, ends: str) -> None:
    asked = []
    (machine,) = exported(ANNOUNCEMENT, tmp_path).WORKFLOWS  # it imports `tests.machines`

    def carry_out(name: str, wanted: Any) -> dict[str, int]:
        asked.append((name, wanted["idempotency_key"], wanted["from_state"]))
        return {"heard_by": 3 // int(succeeds)}

    def play() -> TemporalInstanceRun:
        run = started(machine, effects=carry_out)
        assert fired(run, "announce") == (False, {"status": "applied", "from": "drafted", "to": "announcing", "seq": 1})
        return run

    run = thread(play)
    assert run.ended
    assert thread(run.show)["state"] == ends
    assert asked == [("notice", "instance:1:0", "drafted")]


def test_an_approval_is_a_child_workflow_of_the_same_machine_and_its_grant_fires_the_follow_up(
    thread: Run, tmp_path: Path
) -> None:
    reviewing, approving = exported(PULL_REQUEST, tmp_path).WORKFLOWS
    story = LinkedWorkflow("story", "S-1", "review", workflow_id="story/S-1")
    facts = FactsFound({"story": [story]})

    def play() -> None:
        run = started(reviewing, facts)
        for trigger in ("start_review", "approve", "merge"):
            refused, said = fired(run, trigger, "author")
            assert not refused
        assert said["status"] == "waiting"
        assert fired(run, "merge")[1]["code"] == "already_held"
        (child,) = run.children
        terms = {"quorum": 2, "deciders": [], "author": "author"}
        approval = started(approving, start=TemporalStart(context=terms))
        assert fired(approval, "approve", "author", "decider")[1]["missing"] == ["not_the_author"]
        assert fired(approval, "approve", "bob", "decider")[1]["to"] == "pending"
        assert fired(approval, "approve", "bob", "decider")[1]["missing"] == ["not_voted_yet"]
        assert fired(approval, "approve", "cid", "decider")[1]["to"] == "approved"
        assert approval.ended
        run.end_child(child, "granted")
        assert run.ended
        assert run.show()["state"] == "merged"
        assert run.told == [
            (
                "story/S-1",
                {"trigger": "approve", "by": "author", "authority": "machinery", "data": {}, "if_version": None},
            )
        ]

    thread(play)


def test_an_instance_goes_on_where_it_was_left(thread: Run, tmp_path: Path) -> None:
    (machine,) = exported(catalogue().get("circuit_breaker"), tmp_path).WORKFLOWS

    def play() -> None:
        run = started(machine, start=TemporalStart(state="OPEN", version=7, due_at=1_767_225_700.0))
        assert run.show()["due_at"] == 1_767_225_700.0
        run.elapse()
        assert (run.show()["state"], run.show()["version"]) == ("HALF_OPEN", 8)
        run.remove()

    thread(play)


def test_a_long_workflow_goes_on_as_a_new_run(thread: Run, tmp_path: Path) -> None:
    (machine,) = exported(catalogue().get("circuit_breaker"), tmp_path).WORKFLOWS

    def play() -> None:
        run = started(machine, start=TemporalStart(context={"cooldown_seconds": 600}))
        run.is_long = True
        fired(run, "failure_threshold_exceeded", "bob", "machinery")
        assert run.continued is not None
        assert (run.continued.state, run.continued.version) == ("OPEN", 1)
        again = started(machine, start=run.continued)
        assert again.show()["due_at"] == run.continued.due_at
        again.elapse()
        assert again.show()["state"] == "HALF_OPEN"
        again.remove()

    thread(play)


def test_a_version_that_is_not_the_instances_is_refused(thread: Run, tmp_path: Path) -> None:
    (machine,) = exported(catalogue().get("circuit_breaker"), tmp_path).WORKFLOWS

    def play() -> None:
        run = started(machine)
        refused, said = run.update(TemporalFiring("failure_threshold_exceeded", "ann", "machinery", if_version=3))
        assert (refused, said["code"]) == (True, "version_conflict")
        run.remove()

    thread(play)


def test_the_exported_program_runs_in_the_sdks_sandbox(
    thread: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    form = FORMS["temporal"]
    path = tmp_path / form.file_name(PULL_REQUEST)
    path.write_text(form.write(PULL_REQUEST))
    machine = import_module(path.stem).WORKFLOWS[0]

    def play() -> None:
        run = started(machine, runner=SandboxedWorkflowRunner())
        assert fired(run, "start_review")[1]["to"] == "reviewing"
        assert fired(run, "merge")[1]["code"] == "no_such_transition"
        run.remove()

    thread(play)


def test_a_worker_names_the_activities_that_it_lacks() -> None:
    story = catalogue().get("story")
    with pytest.raises(InvalidDefinition, match="not given: facts, notice, relink"):
        activities([story], {}, None, None)
