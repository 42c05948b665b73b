"""A phase rules what its workstreams may change and what they need to land (docs/spec/phase.md)."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from rich.console import Console

from interlock.cli.runs.tree import draw
from interlock.db.core.requests import partition_of
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.client.receipts import Receipt
from interlock.workers.effects import merge
from interlock.workers.orchestration.run_view import Watch
from interlock.workers.orchestration.submission import Run, submit
from interlock.workers.overrides.at_once import CannotMove
from interlock.workers.overrides.phases import freeze, thaw
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder
from interlock.workers.pool import claims
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, NotYours, UnknownInstance
from interlock.workflows.plan.phases import Phase
from interlock.workflows.plan.problems import PlanInvalid
from interlock.workflows.plan.read import read_phases, read_plan
from tests.crewing import hand, take
from tests.driving import applied, drain_all, state
from tests.landscape import Landscape
from tests.repositories import git
from tests.rights import fire, known
from tests.running import PHASED
from tests.stuck import found, paste, terminal
from tests.working import hire, settle, states, work

pytestmark = pytest.mark.integration

WHY = OverrideOrder("ann", "code freeze until Monday")
Dba = psycopg.Connection[tuple[Any, ...]]
COMMIT = "git config user.name c; git config user.email c; git add -A; git commit -qm mine"
RELEASE = {"release": {"allowed_paths": ["app.py"]}}


@pytest.fixture
def land(make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path) -> Landscape:
    return Landscape(make_runtime(), dba, tmp_path, {"path": "repo"}, phases=RELEASE, phase_id="release")


@pytest.mark.promise("O8")
def test_a_patch_outside_its_phases_paths_is_quarantined_with_the_phases_name(land: Landscape) -> None:
    within, outside = land.patch({"app.py": "1\n"}), land.patch({"docs/read me.txt": "x\n"}, "u")
    land.settle()
    assert state(land.client, within) == "validated"
    row = land.entry(outside)
    said = "docs/read me.txt: may not be changed in phase release, which allows app.py (phase)"
    assert (row["state"], row["quarantine_reason"]) == ("quarantined", said)


@pytest.mark.promise("O8")
def test_what_a_command_committed_outside_its_phases_paths_does_not_land(land: Landscape) -> None:
    land.gate(["sh", "-c", f"echo x > stray; {COMMIT}"])
    land.settle()
    land.validate_and_land()
    assert state(land.client, land.workstream) == "failed"
    assert "stray: may not be changed in phase release" in land.said(land.workstream)["reason"]
    assert git(land.checkout, "log", "--format=%s", "main") == "First\n"


@pytest.fixture
def run(runtime: Runtime, tmp_path: Path, ann: None) -> Run:
    """A run of two workstreams, `ship` in the phase `release`, which is open."""
    found = submit(runtime, read_plan(PHASED), by="bob", directory=tmp_path)
    drain_all(runtime)
    return found


@pytest.mark.promise("O8")
def test_while_a_phase_is_frozen_its_tasks_are_not_queued(runtime: Runtime, client: Client, run: Run) -> None:
    freeze(runtime, "release", WHY)
    settle(client, run.id)
    assert states(client, run.id) == {"design/t": "queued", "ship/t": "pending"}
    thaw(runtime, "release", OverrideOrder("ann", "it is out"))
    settle(client, run.id)
    assert states(client, run.id) == {"design/t": "queued", "ship/t": "queued"}


@pytest.mark.promise("O8")
def test_while_a_phase_is_frozen_its_queued_tasks_are_not_claimed(runtime: Runtime, client: Client, run: Run) -> None:
    settle(client, run.id)
    freeze(runtime, "release", WHY)
    worker = hand(runtime, max_concurrent_tasks=2)
    take(runtime, worker)
    assert states(client, run.id) == {"design/t": "running", "ship/t": "queued"}
    assert claims.take(runtime, known(worker)) is None
    thaw(runtime, "release", WHY)
    take(runtime, worker)
    assert states(client, run.id) == {"design/t": "running", "ship/t": "running"}


@pytest.mark.promise("O8")
def test_a_retry_that_comes_due_while_its_phase_is_frozen_is_queued_and_waits_for_the_thaw(
    runtime: Runtime, client: Client, dba: Dba, run: Run
) -> None:
    settle(client, run.id)
    worker = hand(runtime, max_concurrent_tasks=2)
    taken = [take(runtime, worker), take(runtime, worker)]
    ship = next(each for each in taken if each.task.endswith("ship/t"))
    claims.finish(runtime, known(worker), ship.token, Report("execution_failed", {"exit_code": 1, "error": "no"}))
    freeze(runtime, "release", WHY)
    assert states(client, run.id)["ship/t"] == "retrying"
    dba.execute(
        "UPDATE trigger_requests SET status = 'pending', not_before = now() WHERE trigger = 'retry_delay_elapsed'"
    )
    settle(client, run.id)
    assert states(client, run.id)["ship/t"] == "queued"
    assert claims.take(runtime, known(worker)) is None
    told = found(runtime, ship.task_id, everything=True)
    assert told.reason.startswith("its phase release is frozen: code freeze until Monday, since ")
    thaw(runtime, "release", WHY)
    assert take(runtime, worker).task_id == ship.task_id


@pytest.mark.promise("O8")
def test_while_a_phase_is_frozen_its_workstreams_do_not_complete(runtime: Runtime, client: Client, run: Run) -> None:
    settle(client, run.id)
    freeze(runtime, "release", WHY)
    worker = hire(client, run.project)
    work(client, run.id, worker)
    assert states(client, run.id, "workstream") == {"design": "completed", "ship": "validating"}
    asked = [each["name"] for each in client.show(f"{run.name}/ship")["effects"]]
    assert "land_workstream" not in asked
    thaw(runtime, "release", WHY)
    settle(client, run.id)
    assert "land_workstream" in [each["name"] for each in client.show(f"{run.name}/ship")["effects"]]
    work(client, run.id, worker)
    assert state(client, run.id) == "succeeded"


@pytest.mark.usefixtures("ann")
def test_a_merge_asked_for_before_the_freeze_waits_for_the_thaw(land: Landscape) -> None:
    land.committed_patch({"app.py": "1\n"})
    land.validate()
    land.land()
    freeze(land.runtime, "release", WHY)
    for _ in range(land.runtime.settings.max_attempts + 1):
        land.make_due()
        land.settle()
    assert state(land.client, land.workstream) == "validating"
    assert git(land.checkout, "log", "--format=%s", "main") == "First\n"
    thaw(land.runtime, "release", WHY)
    land.make_due()
    land.settle()
    assert state(land.client, land.workstream) == "completed"


@pytest.mark.usefixtures("ann")
def test_a_freeze_comes_before_a_landing_or_after_it_also_if_a_node_applies_it(
    land: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PHASE-6: a landing that has decided to complete commits first."""
    completing = merge._completing

    def freeze_by_a_node() -> None:
        land.client.fire("phase/release", "freeze", by="ann", data={"reason": "now"})
        Drain(land.runtime).partition(partition_of(land.client.show("phase/release")["id"]))

    @contextmanager
    def frozen_meanwhile(*given: Any) -> Iterator[None]:
        with completing(*given):
            frozen = pool.submit(freeze_by_a_node)
            wait([frozen], timeout=2.0)
            assert state(land.client, "phase/release") == "open"
            yield
        frozen.result(30.0)

    monkeypatch.setattr(merge, "_completing", frozen_meanwhile)
    land.committed_patch({"app.py": "1\n"})
    land.validate()
    land.land()
    with ThreadPoolExecutor(1) as pool:
        land.settle()
    assert state(land.client, land.workstream) == "completed"
    landed, froze = (land.client.history(each)[-1] for each in (land.workstream, "phase/release"))
    assert (froze["to_state"], landed["xid"] < froze["xid"]) == ("frozen", True)


def test_only_an_operator_freezes_and_thaws_with_a_reason(runtime: Runtime, client: Client, run: Run) -> None:
    for act in (freeze, thaw):
        with pytest.raises(NotAnOperator, match="bob"):
            act(runtime, "release", OverrideOrder("bob", "why"))
    with pytest.raises(NotYours):
        client.fire("phase/release", "freeze", by="bob", data={"reason": "why"})
    with pytest.raises(UnknownInstance):
        freeze(runtime, "relaese", WHY)
    freeze(runtime, "release", WHY)
    (*_, event) = client.history("phase/release")
    assert (event["to_state"], event["triggered_by"], event["metadata"]["reason"]) == ("frozen", "ann", WHY.reason)
    with pytest.raises(CannotMove, match="frozen"):
        freeze(runtime, "release", WHY)


def test_a_phase_begins_frozen_where_the_first_plan_says_so_and_no_later_plan_freezes_it(
    runtime: Runtime, client: Client, tmp_path: Path, ann: None
) -> None:
    """PHASE-5."""
    frozen = PHASED.replace("{release: {}}", "{release: {frozen: not before May}}")
    run = submit(runtime, read_plan(frozen), by="bob", directory=tmp_path)
    settle(client, run.id)
    assert state(client, "phase/release") == "frozen"
    assert client.history("phase/release")[-1]["metadata"]["reason"] == "not before May"
    assert states(client, run.id)["ship/t"] == "pending"
    thaw(runtime, "release", OverrideOrder("ann", "it is May"))
    again = submit(runtime, read_plan(frozen), by="bob", directory=tmp_path)
    settle(client, again.id)
    assert state(client, "phase/release") == "open"
    assert states(client, run.id)["ship/t"] == "pending", "its scheduler has not run"
    settle(client, run.id)
    assert states(client, run.id)["ship/t"] == states(client, again.id)["ship/t"] == "queued"


def test_stuck_and_the_tree_say_since_when_and_why_and_how_to_go_on(runtime: Runtime, client: Client, run: Run) -> None:
    settle(client, run.id)
    freeze(runtime, "release", WHY)
    tree = StringIO()
    Console(file=tree, width=200).print(draw(Watch(runtime, run.id).view, lines=20))
    assert re.search(r"ship .*frozen: code freeze until Monday, since \d{4}-.* UTC \(phase release\)", tree.getvalue())
    assert Watch(runtime, run.id).view.as_tree()["workstreams"][1]["frozen"]["reason"] == WHY.reason
    for ref in (f"{run.name}/ship", f"{run.name}/ship/t"):
        told = found(runtime, ref, everything=True)
        assert told.reason.startswith("its phase release is frozen: code freeze until Monday, since ")
        assert told.command.startswith("interlock phase thaw release --project ")
    said = paste(runtime, told.command, WHY="over").said
    assert "is open: over" in said
    assert "frozen" not in found(runtime, f"{run.name}/ship/t", everything=True).reason


@pytest.fixture
def asked(runtime: Runtime, client: Client, tmp_path: Path, dba: Dba) -> tuple[Run, UUID]:
    """A run submitted by bob, of which `ship` waits to land, and the approval that it waits for."""
    plan = read_plan(PHASED.replace("{release: {}}", "{release: {approvers: [bob, carol]}}"))
    run = submit(runtime, plan, by="bob", directory=tmp_path)
    work(client, run.id, hire(client, run.project))
    assert states(client, run.id, "workstream") == {"design": "completed", "ship": "validating"}
    (found,) = dba.execute("SELECT id FROM workflow_instances WHERE workflow_type = 'approval'").fetchall()
    return run, found[0]


def test_the_tree_and_whoever_watches_say_which_approval_a_landing_waits_for_and_what_to_type(
    runtime: Runtime, client: Client, tmp_path: Path
) -> None:
    plan = read_plan(PHASED.replace("{release: {}}", "{release: {approvers: [bob, carol]}}"))
    run = submit(runtime, plan, by="bob", directory=tmp_path)
    watch = Watch(runtime, run.id)
    work(client, run.id, hire(client, run.project))
    (asked,) = [each for each in watch.look() if each.kind == "approval"]
    assert (asked.name, asked.was, asked.state, asked.reason) == ("ship", None, "pending", "carol"), "bob is the author"
    assert [each for each in watch.look() if each.kind == "approval"] == [], "told once"
    drawn = StringIO()
    Console(file=drawn, width=200).print(draw(watch.view, lines=20))
    assert "landing of ship  waits for the approval of carol" in drawn.getvalue()
    (offer,) = re.findall("let it land: (.*)", drawn.getvalue())
    paste(runtime, offer.strip())
    settle(client, run.id)
    watch.look()
    assert watch.view.approvals == {}
    assert client.show(asked.id)["current_state"] == "approved"


@pytest.mark.promise("O8")
def test_a_landing_waits_for_one_of_its_phases_approvers(
    runtime: Runtime, client: Client, asked: tuple[Run, UUID]
) -> None:
    """PHASE-7: never for its author, nor for anybody else."""
    run, approval = asked
    told = found(runtime, f"{run.name}/ship", everything=True)
    name = client.show(approval)["entity_id"]
    assert told.reason == f"its landing waits for the approval {name}, the decision of carol"
    assert told.command.startswith(f"interlock fire {approval} approve --by carol ")
    for who, why in (("bob", "bob is its author"), ("dave", "dave is none of its deciders")):
        with pytest.raises(NotYours, match=why):
            client.fire(approval, "approve", by=who)
    refused = applying(client, run, "validation_passed")
    assert (refused.status, "none of whom has approved" in str(refused.result)) == ("rejected", True)
    applied(client, approval, "approve", by="carol")
    settle(client, run.id)
    assert "land_workstream" in [each["name"] for each in client.show(f"{run.name}/ship")["effects"]]
    assert applying(client, run, "validation_passed").status == "applied"
    settle(client, run.id)
    assert state(client, run.id) == "succeeded"


def test_a_rejected_landing_fails_its_workstream_with_the_reason(client: Client, asked: tuple[Run, UUID]) -> None:
    run, approval = asked
    client.fire(approval, "reject", by="carol", data={"reason": "too late"})
    settle(client, run.id)
    assert states(client, run.id, "workstream")["ship"] == "failed"
    assert client.history(f"{run.name}/ship")[-1]["metadata"]["reason"] == "carol rejected its landing: too late"


def test_a_landing_that_nobody_decides_about_fails_its_workstream(client: Client, asked: tuple[Run, UUID]) -> None:
    run, approval = asked
    applied(client, approval, "expire")
    settle(client, run.id)
    assert states(client, run.id, "workstream")["ship"] == "failed"
    assert client.history(f"{run.name}/ship")[-1]["metadata"]["reason"] == "nobody decided about its landing in time"


def test_an_approval_of_other_terms_lets_nothing_land(client: Client, asked: tuple[Run, UUID]) -> None:
    run, true = asked
    context = dict(client.show(true)["context"])
    for number, terms in enumerate(({"deciders": ["mallory"]}, {"author": "eve"}, {"subject_version": 0})):
        forged = client.create("approval", f"forged-{number}", project=run.project, context=context | terms)["id"]
        applied(client, forged, "approve", by="mallory" if "deciders" in terms else "carol")
        settle(client, run.id)
        assert applying(client, run, "validation_passed").status == "rejected"
    assert "land_workstream" not in [each["name"] for each in client.show(f"{run.name}/ship")["effects"]]


def test_a_plan_that_only_its_submitter_could_approve_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    plan = read_plan(PHASED.replace("{release: {}}", "{release: {approvers: [bob]}}"))
    with pytest.raises(BadInput, match="workstream ship: in phase release only bob may approve"):
        submit(runtime, plan, by="bob", directory=tmp_path)
    assert submit(runtime, plan, by="carol", directory=tmp_path)


@pytest.mark.promise("O8")
def test_an_installations_phases_are_those_of_all_plans(make_runtime: Callable[..., Runtime], tmp_path: Path) -> None:
    """PHASE-8: nobody chooses other terms."""
    policy = tmp_path / "phases.yaml"
    policy.write_text("phases: {release: {approvers: [carol]}}")
    strict = make_runtime(phases=policy)
    with pytest.raises(BadInput, match="other phases than INTERLOCK_PHASES"):
        submit(strict, read_plan(PHASED), by="bob", directory=tmp_path)
    with pytest.raises(PlanInvalid, match=re.escape("plan.yaml:3:1: phases: this installation has a file of phases")):
        read_plan(PHASED, phases=read_phases(policy.read_text()))
    bare = PHASED.replace("phases: {release: {}}\n", "")
    run = submit(strict, read_plan(bare, phases=read_phases(policy.read_text())), by="bob", directory=tmp_path)
    assert run.project
    (tmp_path / "plan.yaml").write_text(bare)
    checked = terminal(strict, INTERLOCK_PHASES=str(policy)).run("run", "check", str(tmp_path / "plan.yaml"))
    assert checked.code == 0, checked.said
    policy.write_text("phases: {release: {aprovers: [carol]}}")
    with pytest.raises(PlanInvalid, match=re.escape("phases.yaml:1:20: phases.release.aprovers: unknown field")):
        submit(strict, read_plan(bare, phases={"release": Phase()}), by="bob", directory=tmp_path)


def applying(client: Client, run: Run, trigger: str) -> Receipt:
    """Report the landing of `ship`; the receipt with the outcome."""
    receipt = fire(client, f"{run.name}/ship", trigger, by="test")
    drain_all(client.runtime)
    return client.wait([receipt.request_id], timeout_seconds=5)[0]


def test_operators_freeze_list_and_thaw_from_the_command_line(runtime: Runtime, run: Run) -> None:
    shell = terminal(runtime)
    shell.ok("phase", "freeze", "release", "--by", "ann", "--reason", "why")
    (listed,) = shell.ok("phase", "list", "--project", run.project)
    assert {each: listed[each] for each in ("phase", "state", "by", "reason", "workstreams")} == {
        "phase": "release", "state": "frozen", "by": "ann", "reason": "why", "workstreams": 1,
    }  # fmt: skip
    assert shell.ok("phase", "thaw", "release", "--by", "ann", "--reason", "done")["current_state"] == "open"


@pytest.mark.promise("O8")
def test_nothing_is_born_in_a_phase_that_its_project_does_not_have(runtime: Runtime, client: Client, run: Run) -> None:
    """PHASE-2, whoever writes."""
    with pytest.raises(UnknownInstance, match="project elsewhere has no phase release"):
        client.create("run", "r", project="elsewhere", context={"phase_id": "release"})
    assert client.create("run", "r", project=run.project, context={"phase_id": "release"})["current_state"] == "pending"


def test_what_a_workstream_holds_is_in_its_phase(runtime: Runtime, dba: Dba, tmp_path: Path) -> None:
    plan = read_plan(
        "name: p\nphase_id: design\nphases: {design: {}, release: {}}\nworkstreams:\n"
        "  - {id: a, tasks: [{id: t, command: [x]}]}\n"
        "  - {id: b, phase_id: release, tasks: [{id: t, command: [x]}], gates: [{id: g, type: UNIT, command: [x]}]}\n"
    )
    made = submit(runtime, plan, by="ann", directory=tmp_path)
    found = dba.execute(
        "SELECT context->>'name', context->>'phase_id' FROM workflow_instances WHERE context ? 'run_id'"
    )
    named = {"a": "design", "a/t": "design", "b": "release", "b/t": "release", "b/g": "release", made.name: "design"}
    assert dict(found.fetchall()) == named
