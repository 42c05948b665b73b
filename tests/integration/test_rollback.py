"""A rollback is done whole, then told; or repository and ledger are as they were."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.supervisor.environment import environment
from interlock.workers.git.rollback_plan import CompensationPlan
from interlock.workers.operations import rollback
from interlock.workers.operations.rollback import (
    CannotRollBack,
    CompensationFailed,
    compensation_plan,
    override_roll_back,
    roll_back,
)
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.runtime import runtime as process_runtime
from interlock.workflows.errors import BadInput
from tests.callers import FORKS
from tests.driving import state
from tests.landscape import Landscape
from tests.repositories import FILES, everything, git, put
from tests.webhooks import webhook

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]


def gated(runtime: Runtime, dba: Dba, root: Path) -> Landscape:
    """A workstream with a gate that looks at the patched file, and another one."""
    land = Landscape(runtime, dba, root)
    land.gate(["grep", "-q", "one", "docs/read me.txt"], "other", gate_type="LINT")
    land.gate(["test", "-f", "app.py"], "unit")
    return land


def begin(runtime: Runtime, dba: Dba, root: Path) -> Landscape:
    """`begun`: its patch has landed."""
    land = gated(runtime, dba, root)
    land.committed_patch()
    land.validate_and_land()
    assert state(land.client, land.workstream) == "completed"
    return land


@pytest.fixture
def land(runtime: Runtime, dba: Dba, tmp_path: Path) -> Landscape:
    return gated(runtime, dba, tmp_path)


def plan(land: Landscape, entry: Any, **changed: Any) -> CompensationPlan:
    """The plan that is generated, with parts of it replaced."""
    return CompensationPlan.model_validate(compensation_plan(land.runtime, entry).model_dump(mode="json") | changed)


def revert(land: Landscape, entry: Any) -> dict[str, Any]:
    return {"action": "git_revert", "commit_sha": land.entry(entry)["commit_sha"], "branch": "main"}


def ledger(land: Landscape, entry: Any) -> Any:
    return land.entry(entry), [dict(each) for each in land.client.history(entry)]


def test_a_patch_that_landed_is_reverted_proved_and_told_once(begun: Landscape) -> None:
    entry = begun.only_patch()
    made = compensation_plan(begun.runtime, entry)
    assert made.validation.required_gates == ("UNIT",), "only what passed can be asked to pass again"
    done = roll_back(begun.runtime, entry, made, by="ann", reason="regression")
    assert (begun.checkout / "app.py").read_text() == FILES["app.py"]
    assert done.compensation["sha"] == git(begun.checkout, "rev-parse", "main").strip()
    row, event = begun.entry(entry), begun.client.history(entry)[-1]
    assert (row["state"], row["rollback_reason"]) == ("rolled_back", "regression")
    assert row["rollback_compensation"] == done.compensation
    assert (event["severity"], event["metadata"]["authorized_by"]) == ("critical", "ann")
    actions = [each["action"].split()[0] for each in done.compensation["actions"]]
    assert actions == ["git_revert", "gate", "verify_clean_state"]
    before = everything(begun.checkout), ledger(begun, entry)
    assert roll_back(begun.runtime, entry, made, by="bob", reason="again") == done
    assert (everything(begun.checkout), ledger(begun, entry)) == before, "asked again, it does nothing twice"


def test_a_patch_is_rolled_back_on_its_workstreams_branch_before_that_landed(land: Landscape) -> None:
    entry = land.committed_patch()
    made = compensation_plan(land.runtime, entry)
    assert made.reverts[0].branch == land.place.branch
    roll_back(land.runtime, entry, made, by="ann", reason="regression")
    assert (land.place.path / "app.py").read_text() == FILES["app.py"]
    assert git(land.checkout, "log", "--format=%s", "main") == "First\n"


def test_only_a_required_action_that_fails_leaves_repository_and_ledger_as_they_were(
    begun: Landscape,
) -> None:
    entry = begun.only_patch()
    tests = {"action": "run_tests", "test_suite": "other", "required": True}
    notice = {"action": "notify", "channels": ["slack"], "required": True}
    failing: dict[str, dict[str, Any]] = {
        "gate LINT: w/other: exit code 1": {"validation": {"required_gates": ["LINT"]}},
        "no gate of type SECURITY": {"validation": {"required_gates": ["SECURITY"]}},
        "run_tests other": {"actions": [revert(begun, entry), tests]},
        "INTERLOCK_NOTIFY_URLS": {"actions": [revert(begun, entry), notice]},
    }
    before = everything(begun.checkout), ledger(begun, entry)
    for says, changed in failing.items():
        with pytest.raises(CompensationFailed, match=says):
            roll_back(begun.runtime, entry, plan(begun, entry, **changed), by="ann", reason="regression")
        assert (everything(begun.checkout), ledger(begun, entry)) == before, says
    actions = [revert(begun, entry), {"action": "run_tests", "test_suite": "other"}]
    done = roll_back(begun.runtime, entry, plan(begun, entry, actions=actions), by="ann", reason="regression")
    assert [each["success"] for each in done.compensation["actions"]][:2] == [True, False]
    assert state(begun.client, entry) == "rolled_back"


def test_a_conflicting_revert_leaves_everything_as_it_was(begun: Landscape) -> None:
    entry = begun.only_patch()
    put(begun.checkout, {"app.py": "later\n"})
    git(begun.checkout, "commit", "-qam", "Later")
    before = everything(begun.checkout), ledger(begun, entry)
    with pytest.raises(CompensationFailed, match=r"conflict in app\.py"):
        roll_back(begun.runtime, entry, plan(begun, entry), by="ann", reason="regression")
    assert (everything(begun.checkout), ledger(begun, entry)) == before


def test_a_notice_goes_to_the_targets_of_its_channels(begun: Landscape) -> None:
    entry = begun.only_patch()
    with webhook() as world:
        told = Runtime(begun.runtime.settings.model_copy(update={"notify_urls": (world.url,)}))
        made = compensation_plan(told, entry)
        roll_back(told, entry, made, by="ann", reason="regression")
        told.close()
    titles = [json.loads(each["body"])["title"] for each in world.received]
    assert [each for each in titles if "operator_grant" not in each] == ["patch demo/w/t^1 rolled back"]


@pytest.mark.parametrize("until", ["validated", "applied"])
def test_only_a_committed_patch_can_be_rolled_back(land: Landscape, until: str) -> None:
    entry = land.applied_patch() if until == "applied" else land.patch({"x": "y\n"})
    land.settle()
    before = everything(land.checkout), ledger(land, entry)
    nothing = CompensationPlan(compensation_type="skip")
    with pytest.raises(CannotRollBack, match=f"demo/w/t\\^1 is {until}"):
        roll_back(land.runtime, entry, nothing, by="ann", reason="regression")
    assert (everything(land.checkout), ledger(land, entry)) == before


def test_a_plan_that_does_not_take_this_patch_back_is_refused(land: Landscape) -> None:
    earlier = land.committed_patch({"earlier": "e\n"}, "earlier")
    entry = land.committed_patch()
    later = land.committed_patch({"later": "l\n"}, "later")
    land.validate_and_land()
    wrong = {
        "earlier": revert(land, earlier),
        "later": revert(land, later),
        "not required": revert(land, entry) | {"required": False},
        "nothing": revert(land, entry) | {"commit_sha": "f" * 40},
    }
    before = everything(land.checkout), ledger(land, entry)
    for named, action in wrong.items():
        with pytest.raises(CannotRollBack, match=f"which is commit {land.entry(entry)['commit_sha']}"):
            roll_back(land.runtime, entry, plan(land, entry, actions=[action]), by="ann", reason="regression")
        assert (everything(land.checkout), ledger(land, entry)) == before, named


def test_a_patch_is_taken_back_with_the_merge_that_brought_it(begun: Landscape) -> None:
    entry = begun.only_patch()
    action = revert(begun, entry) | {"commit_sha": git(begun.checkout, "rev-parse", "main").strip()}
    roll_back(begun.runtime, entry, plan(begun, entry, actions=[action]), by="ann", reason="regression")
    assert (begun.checkout / "app.py").read_text() == FILES["app.py"]
    assert state(begun.client, entry) == "rolled_back"


def die_before_telling(env: Mapping[str, str], ledger_id: str) -> None:
    """Roll back in a process of its own, which is killed between the revert and the trigger."""
    os.environ.clear()
    os.environ.update(env)
    rollback._fire = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    made = compensation_plan(process_runtime(), ledger_id)
    roll_back(process_runtime(), ledger_id, made, by="ann", reason="regression")


def test_a_crash_between_revert_and_trigger_is_completed_by_asking_again(begun: Landscape) -> None:
    entry = begun.only_patch()
    wanted = plan(begun, entry)
    died = FORKS.Process(target=die_before_telling, args=(environment(begun.runtime.settings), str(entry)))
    died.start()
    died.join()
    assert died.exitcode, "killed"
    reverted = git(begun.checkout, "rev-parse", "main")
    assert git(begun.checkout, "log", "-1", "--format=%s") == 'Revert "Mend"\n'
    assert state(begun.client, entry) == "committed"
    done = roll_back(begun.runtime, entry, wanted, by="ann", reason="regression")
    assert done.compensation["already"] is True
    assert git(begun.checkout, "rev-parse", "main") == reverted
    assert state(begun.client, entry) == "rolled_back"


def by_hand(land: Landscape, entry: Any, files: dict[str, str]) -> str:
    """Mend the base branch as people do; the commit."""
    put(land.checkout, files)
    git(land.checkout, "add", "-A")
    git(land.checkout, "commit", "-qm", f"Revert: regression (ledger: {entry})")
    return git(land.checkout, "rev-parse", "HEAD").strip()


def test_what_was_reverted_by_hand_is_proved_and_told_with_its_commit(begun: Landscape) -> None:
    """RECOVER-12: `rollback-patch --commit-sha $(git rev-parse HEAD)`."""
    entry = begun.only_patch()
    made = by_hand(begun, entry, {"app.py": FILES["app.py"] + "# mended\n"})
    before = everything(begun.checkout)
    tried = override_roll_back(
        begun.runtime, str(entry), OverrideOrder("ann", "by hand", dry_run=True), mended=made[:12]
    )
    assert [move.to_state for move in tried.moves] == ["rolled_back"]
    assert {note.split(":")[0] for note in tried.notes} <= {"first, not tried now", "then, not run now"}
    assert "then, not run now: gate UNIT has to pass" in tried.notes
    assert state(begun.client, entry) == "committed"
    done = roll_back(begun.runtime, entry, by="ann", reason="by hand", mended=made)
    assert (done.compensation["sha"], done.compensation["plan"]["compensation_type"]) == (made, "manual_fix")
    assert {each["action"].split()[0] for each in done.compensation["actions"]} == {"gate", "verify_clean_state"}
    assert everything(begun.checkout) == before, "what people made is left as it is"
    assert begun.entry(entry)["rollback_compensation"]["sha"] == made


def test_what_was_mended_by_hand_and_fails_a_gate_is_not_rolled_back(begun: Landscape) -> None:
    entry = begun.only_patch()
    git(begun.checkout, "rm", "-q", "app.py")
    made = by_hand(begun, entry, {})
    with pytest.raises(CompensationFailed, match="gate UNIT"):
        roll_back(begun.runtime, entry, by="ann", reason="by hand", mended=made)
    assert state(begun.client, entry) == "committed"


def test_a_commit_that_cannot_have_taken_the_patch_back_is_refused(begun: Landscape) -> None:
    entry = begun.only_patch()
    other = by_hand(begun, entry, {"elsewhere": "x\n"})
    git(begun.checkout, "switch", "-qc", "side")
    aside = by_hand(begun, entry, {"app.py": FILES["app.py"]})
    git(begun.checkout, "switch", "-q", "main")
    wrong = {
        "the patch's own": begun.entry(entry)["commit_sha"],
        "another file's": other,
        "another branch's": aside,
        "none": "f" * 40,
        "no name": "HEAD",
    }
    for named, mended in wrong.items():
        refusal: Any = BadInput if named == "no name" else CannotRollBack
        with pytest.raises(refusal, match=r"does not undo|is not a commit id"):
            roll_back(begun.runtime, entry, by="ann", reason="by hand", mended=mended)
        assert state(begun.client, entry) == "committed", named
