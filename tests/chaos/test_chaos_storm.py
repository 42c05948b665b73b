"""A short storm; `python -m tests.chaos.storm` makes long ones."""

from pathlib import Path

import pytest

from interlock.workers.orchestration.submission import submit
from interlock.workflows.plan.read import read_plan
from tests.chaos.installation import Installation
from tests.chaos.storm.offers import HEALER, Healer, Offer
from tests.chaos.storm.storm import Storm
from tests.rights import operate
from tests.waiting import eventually

SECONDS = 10.0
LONG = "{name: long, workstreams: [{id: w, tasks: [{id: t, command: [sleep, '60']}]}]}"
RUNNING = """
SELECT i.id::text, i.version FROM tasks t JOIN workflow_instances i ON i.id = t.task_id
 WHERE t.run_id = %s AND t.state = 'running'"""


@pytest.mark.promise("O14")
def test_whatever_dies_every_run_ends_and_doing_as_stuck_says_harms_nothing(
    installation: Installation, tmp_path: Path
) -> None:
    storm = Storm(installation, tmp_path, seed=2026, calm_seconds=2.0)
    assert storm.rage(SECONDS) == []
    assert storm.faults.made.total() > 0
    assert storm.healer.asked > 1


def test_the_storm_tells_of_an_offer_that_ends_healthy_work(installation: Installation, tmp_path: Path) -> None:
    with installation.client() as client:
        operate(client.runtime, HEALER)
        run = submit(client.runtime, read_plan(LONG), by="test", directory=tmp_path)
        ((task, version),) = eventually(lambda: installation.sql(RUNNING, run.id))
        healer = Healer(installation, tmp_path, [run.project])
        wrong = f'interlock override reset-task {task} --by "$(id -un)" --reason WHY'
        healer.carry_out(Offer(task, version, "task", "t", "running", "as if it were stuck", wrong))
        client.fire(run.id, "cancel", by="test", data={"reason": "it is over"})
    assert any("it harmed healthy work" in fault for fault in healer.faults)
