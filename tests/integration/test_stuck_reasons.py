"""Whoever stands still is told of with the reason, and the command that is printed beside it cures it (RECOVER-3)."""

import getpass
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.workers.client.client import Client
from interlock.workers.pool.registration import heartbeat
from interlock.workers.runtime import Runtime
from tests.crewing import Site, hand, silence
from tests.driving import applied, drain_all, drain_failing, outcome, state, with_a_dead_request
from tests.landscape import Landscape
from tests.rights import fire, grant, known
from tests.running import Stage
from tests.stuck import age, found, look, paste, terminal

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
HALF_AN_HOUR, HOUR, DAY = 1800.0, 3600.0, 86_400.0


def test_a_run_that_nothing_starts_is_canceled(stage: Stage, runtime: Runtime, dba: Dba) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w"}})
    stage.settle()
    assert found(runtime, stage.ids["t"], everything=True).reason == "its run run has not been started"
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '2 days'")
    told = found(runtime, stage.run, everything=True)
    assert told.reason == "it was made by hand, and nothing starts it"
    paste(runtime, told.command)
    assert stage.state("run") == "canceled"


def test_a_paused_workstream_is_resumed(stage: Stage, runtime: Runtime) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w"}, "u": {"workstream": "w"}})
    stage.start()
    stage.begin("t")
    stage.fire("w", "pause")
    told = found(runtime, stage.ids["u"], everything=True)
    assert told.reason == "its workstream w is paused"
    paste(runtime, told.command)
    assert stage.state("w") == "executing"


def test_a_gate_under_a_lease_names_who_holds_it_and_until_when(stage: Stage, runtime: Runtime, dba: Dba) -> None:
    stage.starts_gates = False
    stage.submit({"w": {}}, {"t": {"workstream": "w", "gates": ["g"]}}, {"g": {"workstream": "w", "moment": "task"}})
    stage.start()
    stage.work("t")
    dba.execute(
        "UPDATE effects SET status = 'leased', leased_by = 'gates@here', lease_until = now() + interval '1 minute'"
    )
    reason = found(runtime, stage.ids["g"], everything=True).reason
    assert reason.startswith("gates@here holds the lease of the effect run_gate until ")
    dba.execute("UPDATE effects SET lease_until = now() - interval '1 minute'")
    assert "expired at" in found(runtime, stage.ids["g"], everything=True).reason


def test_a_workstream_counts_what_has_not_ended(stage: Stage, runtime: Runtime, dba: Dba) -> None:
    stage.submit({"w": {}, "v": {"depends_on": ["w"]}}, {name: {"workstream": "w"} for name in "ab"})
    stage.start()
    stage.begin("a")
    told = found(runtime, stage.ids["w"], everything=True)
    assert told.reason.startswith("its tasks: 1 queued, 1 running; ")
    assert told.command == f"interlock show {stage.ids['w']}"
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '2 days'")
    told = found(runtime, stage.ids["w"])
    assert told.command.startswith(f"interlock playbook run recover-workstream {stage.ids['w']}")
    assert found(runtime, stage.ids["v"], everything=True).reason == "it depends on workstream w (executing)"
    assert "executing" in found(runtime, stage.run, everything=True).reason


def test_an_approval_that_is_missing_is_given(runtime: Runtime, client: Client, project: str) -> None:
    sprint = client.create("sprint", "SP-1", project=project, context={"author": "ann"})["id"]
    fire(client, sprint, "start", by="ann")
    drain_all(runtime)
    told = found(runtime, sprint, everything=True)
    assert told.reason.startswith("start by ann waits for the approval approval/SP-1:start:")
    assert told.reason.endswith(", the decision of anybody but ann")
    paste(runtime, told.command)
    assert state(client, sprint) == "active"


def test_an_approval_whose_instance_has_moved_on_says_that_it_releases_nothing(
    runtime: Runtime, client: Client, project: str
) -> None:
    review = client.create("pr_review", "PR-1", project=project, context={"author": "ann"})["id"]
    applied(client, review, "start_review", "approve", by="bob")
    held = client.fire(review, "merge", by="bob")
    drain_all(runtime)
    approval = outcome(client, held.request_id)["held_by"]
    applied(client, review, "dismiss", by="bob")
    told = found(runtime, approval, everything=True)
    assert told.reason == "pr_review/PR-1 has moved on since its merge was held: approving this does nothing"


def test_an_approval_names_who_may_decide(runtime: Runtime, client: Client, project: str) -> None:
    context = {"quorum": 1, "author": "ann", "deciders": ["bob", "carl"], "subject": "it"}
    approval = client.create("approval", "A-1", project=project, context=context)["id"]
    told = found(runtime, approval, everything=True)
    assert told.reason.startswith("it waits for the decision of bob or carl; it expires at ")
    assert "--by bob" in told.command
    paste(runtime, told.command)
    assert state(client, approval) == "approved"


def test_a_vote_below_its_quorum_says_how_many_are_missing(runtime: Runtime, client: Client, project: str) -> None:
    context = {"quorum": 2, "author": "ann", "deciders": [], "subject": "it"}
    approval = client.create("approval", "A-1", project=project, context=context)["id"]
    client.fire(approval, "approve", by="carl")
    drain_all(runtime)
    told = found(runtime, approval, everything=True)
    assert told.reason.startswith("it waits for the decision of anybody but ann (1 of 2 votes); it expires at ")
    paste(runtime, told.command)
    assert state(client, approval) == "approved"


def test_a_refused_trigger_says_what_its_guard_misses(runtime: Runtime, client: Client, project: str) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    applied(client, story, "design_complete", "start_coding", "submit_pr")
    client.create("pr_review", "PR-1", project=project, context={"author": "ann", "story_id": "S-1"})
    client.fire(story, "approve", by="bob")
    drain_all(runtime)
    told = found(runtime, story, everything=True)
    assert told.reason.startswith("approve was refused: ")
    assert "every pull request linked to the story must be merged" in told.reason
    assert "pr_review PR-1 is submitted" in told.reason


def test_who_was_never_asked_anything_says_what_would_be_legal(runtime: Runtime, client: Client, project: str) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    told = found(runtime, story, everything=True)
    assert told.reason == "nobody has fired a trigger; legal: design_complete, block, move_to_sprint, leave_sprint"
    paste(runtime, told.command)
    assert state(client, story) == "design"


def test_a_dead_request_is_stuck_at_once_and_is_redriven(
    make_runtime: Callable[..., Runtime], project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_runtime(max_attempts=1)
    story = with_a_dead_request(runtime, project, monkeypatch)
    grant(Client(runtime), getpass.getuser())
    told = found(runtime, story)
    assert told.reason == "block is dead after 1 attempt: ValueError: on purpose"
    paste(runtime, told.command)
    assert state(Client(runtime), story) == "blocked"
    assert look(runtime) == []


@pytest.mark.parametrize("request_id", ["--all", "x'; touch PWNED; '", "$(touch PWNED)"])
def test_nothing_that_an_agent_named_reaches_the_shell(
    request_id: str,
    make_runtime: Callable[..., Runtime],
    project: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = make_runtime(max_attempts=1)
    client = Client(runtime)
    grant(client, getpass.getuser())
    for name, asked in (("S-1", request_id), ("S-2", "another")):
        client.fire(client.create("story", name, project=project)["id"], "block", by="ann", request_id=asked)
    drain_failing(runtime, monkeypatch)
    told = found(runtime, "S-1")
    here = terminal(runtime)
    env = {**here.variables, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", told.command], cwd=tmp_path, env=env, check=True, capture_output=True)
    assert list(tmp_path.iterdir()) == []
    assert outcome(client, "another")["status"] == "dead"
    assert outcome(client, request_id)["status"] == "pending"


def test_a_trigger_in_retry_says_when(runtime: Runtime, client: Client, project: str, monkeypatch: Any) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    client.fire(story, "block", by="ann")
    drain_failing(runtime, monkeypatch)
    assert found(runtime, story, everything=True).reason.startswith(
        "block failed 1 time (ValueError: on purpose); it is tried again at "
    )


def test_a_trigger_nobody_applies_points_to_the_doctor(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    client.fire(story, "block", by="ann")
    let_wait(dba, 40)
    assert look(runtime) == []
    let_wait(dba, 61)
    told = found(runtime, story)
    assert re.fullmatch(
        r"block has been due for \d+ s, but no worker has applied it: are workers and beat running\?", told.reason
    )
    assert told.command == "interlock doctor"


def let_wait(dba: Dba, seconds: int) -> None:
    """Let everything that was asked have come due so long ago."""
    dba.execute(
        "UPDATE trigger_requests SET accepted_at = now() - make_interval(secs => %(ago)s),"
        " not_before = now() - make_interval(secs => %(ago)s) WHERE finished_at IS NULL",
        {"ago": seconds},
    )


def test_a_timer_that_nobody_wakes_is_stuck_and_one_of_a_state_since_left_is_not(
    stage: Stage, runtime: Runtime, dba: Dba
) -> None:
    stage.starts_gates = False
    stage.submit({"w": {}}, {name: {"workstream": "w", "gates": [f"g{name}"]} for name in "ab"}, {
        f"g{name}": {"workstream": "w", "moment": "task"} for name in "ab"
    })  # fmt: skip
    stage.start()
    stage.begin("a")
    stage.work("b")  # it is validating: the timer of its run is bound to a state since left
    dba.execute("UPDATE effects SET not_before = now() + interval '1 hour'")
    let_wait(dba, 61)
    (only,) = look(runtime)
    assert only.workflow_id == stage.ids["a"]
    assert re.match(r"timeout_exceeded has been due for \d+ s, but no worker has applied it", only.reason)


def test_what_keeps_its_place_behind_a_retry_is_not_stuck(
    runtime: Runtime, client: Client, project: str, dba: Dba, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    client.fire(story, "block", by="ann")
    drain_failing(runtime, monkeypatch)
    client.fire(story, "unblock", by="ann")
    dba.execute("UPDATE trigger_requests SET not_before = now() + interval '5 minutes' WHERE attempts > 0")
    dba.execute(
        "UPDATE trigger_requests SET (accepted_at, not_before) = (now() - interval '2 min', now() - interval '2 min')"
        " WHERE attempts = 0"
    )
    assert look(runtime) == []


def test_an_effect_that_nobody_takes_and_a_lease_that_ran_out_are_stuck(
    stage: Stage, runtime: Runtime, dba: Dba
) -> None:
    stage.starts_gates = False
    stage.submit({"w": {}}, {"t": {"workstream": "w", "gates": ["g"]}}, {"g": {"workstream": "w", "moment": "task"}})
    stage.start()
    stage.work("t")
    assert look(runtime) == []
    dba.execute("UPDATE effects SET not_before = now() - interval '61 seconds'")
    told = found(runtime, stage.ids["g"])
    assert re.fullmatch(r"the effect run_gate has been due for \d+ s, but no node has started it", told.reason)
    dba.execute(
        "UPDATE effects SET status = 'leased', leased_by = 'gates@here', lease_until = now() + interval '9 seconds'"
    )
    assert look(runtime) == []
    dba.execute("UPDATE effects SET lease_until = now() - interval '61 seconds'")
    assert "which expired at" in found(runtime, stage.ids["g"]).reason


@pytest.mark.usefixtures("ann")
def test_a_silent_worker_is_stuck_and_shut_down(runtime: Runtime, client: Client, site: Site, dba: Dba) -> None:
    worker = hand(runtime, "W")
    assert look(runtime) == []
    silence(dba, worker, 130)
    told = found(runtime, worker)
    assert told.reason == "no heartbeat for 2 min"
    paste(runtime, told.command)
    assert state(client, worker) == "shutdown"
    assert look(runtime) == []


def test_what_is_offered_for_a_silent_worker_spares_one_that_answers_again(
    runtime: Runtime, client: Client, dba: Dba
) -> None:
    grant(client, "ann")
    worker = hand(runtime, "W")
    silence(dba, worker, 130)
    told = found(runtime, worker)
    heartbeat(runtime, [known(worker)])
    answer = terminal(runtime).run(*shlex.split(told.command.replace('"$(id -un)"', "ann"))[1:])
    assert answer.code == 2
    answer.is_one_clear_line("it sends heartbeats again")
    assert state(client, worker) == "idle"


@pytest.mark.promise("O5")
def test_a_suspended_worker_is_resumed_and_one_that_never_became_ready_is_shut_down(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    grant(client, "ann")
    worker = hand(runtime, "W")
    applied(client, worker, "suspend")
    paste(runtime, found(runtime, worker, everything=True).command)
    assert state(client, worker) == "idle"
    born = client.create("worker", "unready", project=project)["id"]
    assert found(runtime, born, everything=True).command == f"interlock show {born}"
    age(dba, born, 2 * DAY)
    paste(runtime, found(runtime, born).command)
    assert state(client, born) == "shutdown"


def test_what_is_offered_moves_nothing_that_has_moved_since(runtime: Runtime, client: Client, project: str) -> None:
    review = client.create("pr_review", "PR-1", project=project, context={"author": "ann"})["id"]
    applied(client, review, "start_review")
    told = found(runtime, review, everything=True)
    assert "approve --by SOMEBODY_ELSE" in told.command  # not request_changes, which would come back here
    applied(client, review, "request_changes", "resubmit")
    words = shlex.split(told.command.replace("SOMEBODY_ELSE", "bob").replace(" --wait", ""))[1:]
    terminal(runtime).run(*words)
    drain_all(runtime)
    assert state(client, review) == "reviewing"


def test_a_silent_worker_stands_still_since_it_was_last_heard_of(runtime: Runtime, dba: Dba) -> None:
    worker = hand(runtime, "W")
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '3 days'")
    silence(dba, worker, 130)
    assert found(runtime, worker).seconds == pytest.approx(130, abs=5)


def test_a_patch_in_the_ledger_says_which_effect_it_waits_for(runtime: Runtime, dba: Dba, tmp_path: Any) -> None:
    landscape = Landscape(runtime, dba, tmp_path)
    entry = landscape.patch({"app.py": "1\n"})
    told = found(runtime, entry, everything=True)
    assert re.fullmatch(r"the effect validate_patch has been due for \d+ s, but no node has started it", told.reason)
