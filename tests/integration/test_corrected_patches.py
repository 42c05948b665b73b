"""A corrected patch leads on its task and its workstream, past no gate and by nobody but an operator (PATCH-13)."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import IntegrityError

from interlock.db.connection import transaction
from interlock.db.orchestration import commands
from interlock.db.orchestration.commands import CommandRow, Origin
from interlock.workers.client.client import Client
from interlock.workers.engine import creation
from interlock.workers.operations.rollback import roll_back
from interlock.workers.orchestration.submission import Run
from interlock.workers.overrides.correct_patch import correct_patch
from interlock.workers.overrides.reset_task import skip_step
from interlock.workers.overrides.transaction import CannotOverride, Done, NotAnOperator, OverrideOrder
from interlock.workers.runtime import Runtime
from tests.carrying import PlanStage
from tests.repositories import FILES, diff, git, make
from tests.working import read

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
BY_HAND = OverrideOrder("ann", "the path was wrong")
NO_FIT = "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n-nothing\n+like\n this\n"
OPEN = {"id": "open", "tasks": [{"id": "wait", "agent": {"instructions": "keep the run going"}}]}
AFTER = {"id": "after", "depends_on": ["w"], "tasks": [{"id": "look", "shell": "grep zwei app.py; cat new.txt"}]}
GATE = {"id": "unit", "type": "UNIT", "shell": "grep -q zwei app.py"}


class Corrections(PlanStage):
    """Runs of a plan with a repository, whose task `w/fix` lands a patch.

    Attributes:
        unfit: such a run, whose patch does not fit, after another that does.
        gated: one whose gate has refused the patch.
    """

    unfit: Run
    gated: Run

    def __init__(self, runtime: Runtime, dba: Dba, folder: Path) -> None:
        super().__init__(Client(runtime), folder)
        self.checkout, self.dba = make(folder / "repo"), dba

    def change(self, word: str) -> str:
        """A patch that puts a word in the place of `two`."""
        return diff(self.checkout, {"app.py": FILES["app.py"].replace("two", word)})

    def fixing(self, patch: str, *others: dict[str, Any], gated: bool = False, before: bool = False) -> Run:
        first = {"id": "first", "patch": {"diff": diff(self.checkout, {"new.txt": "new\n"})}}
        fix = {"id": "fix", "patch": {"diff": patch}} | ({"gates": ["unit"]} if gated else {})
        gates = [GATE] if gated else []
        tasks = [first, fix | {"depends_on": ["first"]}] if before else [fix]
        return self.run({"id": "w", "tasks": tasks, "gates": gates}, OPEN, *others, repository={"path": "repo"})

    def correct(
        self, run: Run, text: str | None, entry: str = "w/fix^1", order: OverrideOrder = BY_HAND, **more: Any
    ) -> Done:
        done = correct_patch(self.runtime, f"{run.name}/{entry}", text, order, **more)
        self.work(run)
        return done

    def states(self, run: Run, kind: str) -> dict[str, str]:
        """Entity id within the run -> state."""
        rows = read(self.client, run.id)[kind]
        return {row["entity_id"].removeprefix(f"{run.name}/"): row["state"] for row in rows}

    def landed(self) -> str:
        return git(self.checkout, "show", "main:app.py")

    def end(self, run: Run) -> str:
        """Leave the task that keeps the run open out; the run's state then."""
        skip_step(self.runtime, f"{run.name}/open/wait", BY_HAND)
        self.work(run)
        return str(self.client.show(run.id)["current_state"])


def begin(runtime: Runtime, dba: Dba, folder: Path) -> Corrections:
    """`stage`: both runs have failed, and are kept open by the task that nobody does."""
    stage = Corrections(runtime, dba, folder)
    stage.unfit = stage.fixing(NO_FIT, AFTER, before=True)
    stage.gated = stage.fixing(stage.change("drei"), gated=True)
    return stage


@pytest.fixture
def stage(begun: Corrections) -> Corrections:
    begun.client = Client(begun.runtime)
    return begun


@pytest.mark.promise("O4")
def test_a_corrected_patch_completes_its_task_and_workstream_which_is_merged_and_followed(stage: Corrections) -> None:
    run = stage.unfit
    assert stage.states(run, "patch_ledger") == {"w/first^1": "committed", "w/fix^1": "quarantined"}
    assert stage.states(run, "workstream") == {"w": "failed", "open": "ready", "after": "cancelled"}
    done = stage.correct(run, stage.change("zwei"))
    assert {name.removeprefix(f"{run.name}/") for name in done.made} == {
        "w~2", "w/first~2", "w/fix~2", "after~2", "after/look~2",
    }  # fmt: skip
    assert stage.states(run, "patch_ledger") == {
        "w/first^1": "committed", "w/fix^1": "quarantined", "w/first~2^1": "committed", "w/fix~2^1": "committed",
    }  # fmt: skip
    assert stage.states(run, "workstream")["w~2"] == stage.states(run, "workstream")["after~2"] == "completed"
    assert "zwei" in stage.landed()
    assert stage.said(run, "after/look")["stdout"] == "zwei\nnew\n"
    entry = stage.client.show(f"patch_ledger/{run.name}/w/fix~2^1")
    assert entry["context"]["retry_of"] == str(stage.client.show(f"patch_ledger/{run.name}/w/fix^1")["id"])
    told = stage.client.show(f"task/{run.name}/w/fix~2")["command"]
    assert (told["source"], told["made_by"], told["reason"]) == ("operator", "ann", "the path was wrong")
    assert stage.end(run) == "succeeded"


@pytest.mark.promise("O4")
def test_the_tasks_gates_judge_the_corrected_patch_before_it_is_committed(stage: Corrections) -> None:
    run = stage.gated
    assert stage.states(run, "test_gate") == {"w/unit": "FAILED"}
    done = stage.correct(run, stage.change("vier"))
    assert f"by the gates {run.name}/w/unit~2" in done.notes[-1]
    assert stage.states(run, "test_gate") == {"w/unit": "FAILED", "w/unit~2": "FAILED"}
    assert stage.states(run, "patch_ledger")["w/fix~2^1"] == "quarantined"
    assert stage.states(run, "workstream")["w~2"] == "failed"
    assert "two" in stage.landed()
    stage.correct(run, stage.change("zwei"), "w/fix~2^1")
    assert stage.states(run, "test_gate")["w/unit~3"] == "PASSED"
    assert stage.states(run, "task")["w/fix~3"] == stage.states(run, "workstream")["w~3"] == "completed"
    assert "zwei" in stage.landed()


@pytest.mark.promise("O4")
def test_a_patch_that_was_taken_back_is_corrected_in_its_workstream_which_then_lands(stage: Corrections) -> None:
    wait = {"id": "wait", "agent": {"instructions": "keep it open"}}
    fix = {"id": "fix", "patch": {"diff": stage.change("zwei")}, "gates": ["unit"]}
    gate = {"id": "unit", "type": "UNIT", "shell": "! grep -q neun app.py"}
    run = stage.run({"id": "w", "tasks": [fix, wait], "gates": [gate]}, repository={"path": "repo"})
    assert stage.states(run, "task") == {"w/fix": "completed", "w/wait": "queued"}
    roll_back(stage.runtime, f"{run.name}/w/fix^1", None, by="ann", reason="too early")
    stage.work(run)
    text = stage.change("drei")
    told = stage.correct(run, text, order=OverrideOrder("ann", "would it?", dry_run=True))
    assert not told.moves
    assert stage.states(run, "task") == {"w/fix": "completed", "w/wait": "queued"}
    stage.correct(run, text)
    assert stage.states(run, "test_gate") == {"w/unit": "PASSED", "w/unit~2": "PASSED"}, "it was judged, too"
    assert stage.states(run, "patch_ledger") == {"w/fix^1": "rolled_back", "w/fix~2^1": "committed"}
    skip_step(stage.runtime, f"{run.name}/w/wait", BY_HAND)
    stage.work(run)
    assert stage.states(run, "workstream") == {"w": "completed"}
    assert "drei" in stage.landed()
    assert stage.client.show(run.id)["current_state"] == "succeeded"


def test_a_paused_workstream_goes_on_with_the_corrected_patch(stage: Corrections) -> None:
    wait = {"id": "wait", "agent": {"instructions": "keep it open"}}
    fix = {"id": "fix", "patch": {"diff": NO_FIT}, "depends_on": ["wait"]}
    run = stage.run({"id": "w", "tasks": [wait, fix]}, repository={"path": "repo"})
    skip_step(stage.runtime, f"{run.name}/w/wait", BY_HAND)
    _pause_before_it_fails(stage, run)
    assert stage.states(run, "workstream") == {"w": "paused"}
    assert stage.states(run, "task")["w/fix"] == "failed"
    stage.correct(run, stage.change("zwei"))
    stage.client.fire(f"workstream/{run.name}/w", "resume", by="ann")
    stage.work(run)
    assert stage.states(run, "workstream") == {"w": "completed"}, "it does not fail for the patch that was replaced"
    assert "zwei" in stage.landed()


def _pause_before_it_fails(stage: Corrections, run: Run) -> None:
    while stage.states(run, "patch_ledger") != {"w/fix^1": "apply_failed"}:
        stage.step(run)
    stage.client.fire(f"workstream/{run.name}/w", "pause", by="ann")
    stage.work(run)


@pytest.mark.promise("O4")
def test_in_another_workstream_new_gates_judge_it(stage: Corrections) -> None:
    run = stage.gated
    done = stage.correct(run, stage.change("vier"), workstream=f"{run.name}/open")
    assert {name.removeprefix(f"{run.name}/") for name in done.made} == {"w/fix~2", "w/unit~2"}
    assert stage.states(run, "test_gate")["w/unit~2"] == "FAILED"
    assert stage.states(run, "patch_ledger")["w/fix~2^1"] == "quarantined"
    again = stage.fixing(stage.change("drei"), gated=True)
    stage.correct(again, stage.change("zwei"), workstream=f"{again.name}/open")
    assert stage.states(again, "test_gate")["w/unit~2"] == "PASSED"
    assert stage.states(again, "patch_ledger")["w/fix~2^1"] == "committed"
    assert stage.end(again) == "failed", "the workstream of the old patch has failed"
    assert "zwei" in stage.landed()


def test_only_an_operator_corrects_a_patch_and_only_one_that_was_set_aside(stage: Corrections, dba: Dba) -> None:
    run = stage.unfit
    before = stage.states(run, "task")
    with pytest.raises(NotAnOperator):
        stage.correct(run, stage.change("zwei"), order=OverrideOrder("mallory", "please"))
    with pytest.raises(CannotOverride, match="is committed; only one that is quarantined or dropped or rolled_back"):
        stage.correct(run, None, "w/first^1")
    theirs = {"workstream_id": str(stage.client.show(f"workstream/{run.name}/open")["id"]), "patch_id": _patch_id(dba)}
    stage.client.create("patch_ledger", f"{run.name}/theirs", context=theirs)
    stage.work(run)
    with pytest.raises(CannotOverride, match="no plan asked for"):
        stage.correct(run, None, "theirs")
    assert stage.states(run, "task") == before
    stage.correct(run, NO_FIT)
    with pytest.raises(CannotOverride, match=r"was done again before: .*/w~2 takes its place"):
        stage.correct(run, stage.change("zwei"))
    stage.correct(run, stage.change("zwei"), "w/fix~2^1")
    assert stage.states(run, "workstream")["w~3"] == "completed"
    stage.end(run)
    with pytest.raises(CannotOverride, match="interlock run resume"):
        stage.correct(run, stage.change("drei"), "w/fix~2^1")


def test_postgresql_gives_no_ledger_entry_a_command_of_its_own(stage: Corrections) -> None:
    run = stage.unfit
    old = stage.client.show(f"patch_ledger/{run.name}/w/fix^1")
    home = stage.client.show(f"workstream/{run.name}/open")["id"]
    context = {"workstream_id": str(home), "patch_id": old["context"]["patch_id"], "retry_of": str(old["id"])}
    birth = stage.client.birth("patch_ledger", f"{run.name}/mine", context=context)
    row = CommandRow("patch", patch_id=context["patch_id"], message="x")

    def store() -> None:
        with transaction(stage.runtime.database) as connection:
            creation.deliver(connection, [birth])
            commands.store(connection, run.id, {birth.id: row}, Origin("operator", "ann", "x"))

    with pytest.raises(IntegrityError, match="cannot get a command"):
        store()


def _patch_id(dba: Dba) -> str:
    return str(dba.execute("SELECT patch_id FROM patches LIMIT 1").fetchall()[0][0])
