"""What a task gives as its result reaches the tasks that name it, as it was given, and nothing else does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.workers.client.client import Client
from interlock.workers.effects import exchange, workspace
from interlock.workers.orchestration.resume import resume
from interlock.workers.overrides.reset_task import reset_task
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool.agent import Agent
from interlock.workers.runtime import Runtime
from interlock.workers.system.users import commands_account
from interlock.workflows.errors import BadInput
from tests.carrying import PlanStage as Stage
from tests.rights import grant
from tests.working import read, states

pytestmark = pytest.mark.integration
GIVES = """printf '%s' '{"version": "1; touch hacked", "sizes": [1, 2]}' > "$INTERLOCK_OUTPUT" """
TELLS = "import json, os; print(os.environ['V']); print(json.dumps(json.load(open(os.environ['INTERLOCK_INPUTS']))))"


@pytest.fixture
def stage(client: Client, tmp_path: Path) -> Stage:
    return Stage(client, tmp_path)


def shell(id_: str, line: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "shell": line, **more}


@pytest.mark.parametrize("sandbox", ["auto", "off"])
@pytest.mark.promise("O18")
def test_a_result_reaches_the_tasks_that_name_it_as_data(
    make_runtime: Callable[..., Runtime], tmp_path: Path, sandbox: str
) -> None:
    stage = Stage(Client(make_runtime(sandbox=sandbox)), tmp_path)
    inputs = {"V": "give:version", "ALL": "give"}
    tells = {"id": "tell", "command": ["python3", "-c", TELLS], "inputs": inputs}
    line = shell("line", "echo $V", inputs={"V": "give:version"})
    run = stage.run({"id": "w", "tasks": [tells, shell("give", GIVES), line]})
    given = {"version": "1; touch hacked", "sizes": [1, 2]}
    assert stage.said(run, "w/give")["result"] == given
    first, second = stage.said(run, "w/tell")["stdout"].splitlines()
    assert (first, json.loads(second)) == ("1; touch hacked", {"V": "1; touch hacked", "ALL": given})
    assert stage.said(run, "w/line")["stdout"] == "1; touch hacked\n"
    assert not list(stage.folder.rglob("hacked"))
    chosen = stage.runtime.settings
    left = workspace.worktrees(chosen, commands_account(chosen)) / exchange.BELOW
    assert list(left.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("echo '{' > $INTERLOCK_OUTPUT", "the result in INTERLOCK_OUTPUT is not JSON"),
        ("echo NaN > $INTERLOCK_OUTPUT", "not a JSON number"),
        ("head -c 70000 /dev/zero | tr '\\0' 1 > $INTERLOCK_OUTPUT", "is larger than 65,536 bytes"),
        ("rm $INTERLOCK_OUTPUT; ln -s /etc/passwd $INTERLOCK_OUTPUT", "cannot be read: it is a link"),
        ("rm $INTERLOCK_OUTPUT; mkfifo $INTERLOCK_OUTPUT", "cannot be read"),
    ],
)
@pytest.mark.promise("O18")
def test_a_result_that_cannot_be_used_fails_the_task_and_says_why(stage: Stage, line: str, why: str) -> None:
    run = stage.run({"id": "w", "tasks": [shell("give", line)]})
    assert states(stage.client, run.id) == {"w/give": "failed"}
    assert why in stage.said(run, "w/give")["error"]


def test_a_task_whose_input_is_missing_fails_before_anything_runs(stage: Stage) -> None:
    tasks = [
        shell("silent", "rm $INTERLOCK_OUTPUT"),
        shell("one", "touch ran", inputs={"A": "silent"}),
        shell("give", GIVES),
        shell("two", "touch ran", inputs={"A": "give:size"}),
    ]
    run = stage.run({"id": "w", "tasks": tasks})
    errors = [stage.said(run, f"w/{each}")["error"] for each in ("one", "two")]
    assert errors[0].startswith("input A: task ")
    assert errors[0].endswith("silent gave no result")
    assert errors[1].endswith("has no key 'size'; it has sizes, version")
    assert not (stage.folder / "ran").exists()


def test_a_resumed_run_uses_the_results_of_what_it_carries_over(stage: Stage) -> None:
    needs = shell("tell", 'test -e now && echo "$SIZES"', inputs={"SIZES": "first/give:sizes"})
    run = stage.run({"id": "first", "tasks": [shell("give", GIVES)]}, {"id": "second", "tasks": [needs]})
    assert states(stage.client, run.id) == {"first/give": "completed", "second/tell": "failed"}
    (stage.folder / "now").touch()
    again = resume(stage.runtime, run.name, by="ann")
    stage.work(again)
    assert states(stage.client, again.id) == {"second/tell": "completed"}
    assert stage.said(again, "second/tell")["stdout"] == "[1, 2]\n"


@pytest.mark.promise("O18")
def test_an_agent_gets_inputs_and_gives_a_result(stage: Stage) -> None:
    asks = {"id": "ask", "agent": {"instructions": "x"}, "inputs": {"V": "give:version"}}
    tells = shell("tell", 'echo "$ANSWER"', inputs={"ANSWER": "ask"})
    run = stage.run({"id": "w", "tasks": [shell("give", GIVES), asks, tells]})
    with Agent("agent-7", runtime=stage.runtime) as agent:
        claim = agent.claim()
        assert claim is not None
        assert claim.inputs == {"V": "1; touch hacked"}
        with pytest.raises(BadInput, match="given beside the output"):
            agent.finish(claim.token, output={"result": 42})
        with pytest.raises(BadInput, match=r"larger than 65,536 bytes as JSON, the limit$"):
            agent.finish(claim.token, result="x" * 70_000)
        agent.finish(claim.token, result=[42])
    stage.work(run)
    assert stage.said(run, "w/tell")["stdout"] == "[42]\n"


def test_what_an_operator_made_anew_gives_the_result(stage: Stage) -> None:
    gives, tells = shell("give", f"test -e now && {GIVES}"), shell("tell", 'echo "$V"', inputs={"V": "give:version"})
    run = stage.run({"id": "w", "tasks": [gives, tells, {"id": "open", "agent": {"instructions": "x"}}]})
    assert states(stage.client, run.id) == {"w/give": "failed", "w/tell": "cancelled", "w/open": "queued"}
    (stage.folder / "now").touch()
    failed = next(row for row in read(stage.client, run.id)["task"] if row["name"] == "w/give")
    grant(stage.client, "ann")
    reset_task(stage.runtime, str(failed["id"]), OverrideOrder("ann", "the file is there now"))
    stage.work(run)
    assert stage.said(run, "w/tell")["stdout"] == "1; touch hacked\n"


def test_a_secret_does_not_become_part_of_a_result(
    make_runtime: Callable[..., Runtime], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_TOKEN", "hunter2-hunter2")
    stage = Stage(Client(make_runtime(secrets_env=("OUR_TOKEN",))), tmp_path)
    line = 'printf \'{"token": "%s"}\' "$TOKEN" > $INTERLOCK_OUTPUT'
    run = stage.run({"id": "w", "tasks": [shell("give", line, env_from={"TOKEN": "env:OUR_TOKEN"})]})
    assert stage.said(run, "w/give")["result"] == {"token": "***"}
