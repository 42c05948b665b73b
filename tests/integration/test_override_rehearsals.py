"""A dry run of any override tells what would happen, and the whole database and the repository stay as they were."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.workers.circuit_breakers import BreakerOpen, calling, known
from interlock.workers.operations.rollback import override_roll_back
from interlock.workers.overrides.circuit_breakers import reset_breaker
from interlock.workers.overrides.reset_task import reset_task, skip_step
from interlock.workers.overrides.tasks import complete_task, fail_task, unblock_task
from interlock.workers.overrides.transaction import CannotOverride, OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import (
    drop_patch,
    fail_workstream,
    validate_workstream,
)
from interlock.workers.runtime import Runtime
from tests.databases import whole
from tests.landscape import Landscape
from tests.repositories import everything as checkout
from tests.running import Stage

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
TRIED, BY_HAND = OverrideOrder("ann", "would it?", dry_run=True), OverrideOrder("ann", "seen to it")


@pytest.mark.parametrize(
    ("command", "ref"),
    [
        (complete_task, "running"),
        (fail_task, "running"),
        (reset_task, "failed"),
        (reset_task, "running"),
        (unblock_task, "waiting"),
        (skip_step, "failed"),
        (skip_step, "waiting"),
        (fail_workstream, "w"),
        (validate_workstream, "paused"),
    ],
)
def test_a_rehearsal_in_a_run_changes_nothing(runtime: Runtime, dba: Dba, command: Any, ref: str) -> None:
    stage = Stage(runtime, dba)
    stage.submit(
        {"w": {}, "paused": {}},
        {
            "running": {"workstream": "w", "gates": ["g"]},
            "waiting": {"workstream": "w", "depends_on": ["running"]},
            "failed": {"workstream": "w", "max_retries": 0, "gates": ["g"]},
            "lost": {"workstream": "w", "depends_on": ["failed"]},
            "optional": {"workstream": "paused", "max_retries": 0},
        },
        {"g": {"workstream": "w", "moment": "task"}},
    )
    stage.start()
    stage.begin("optional")
    stage.fire("paused", "pause")
    stage.fire("optional", "execution_failed", exit_code=1)
    stage.begin("running")
    stage.work("failed", exit_code=1)
    assert stage.states("waiting", "lost", "paused") == {"waiting": "pending", "lost": "cancelled", "paused": "paused"}
    before = whole(dba)
    tried = command(runtime, str(stage.ids[ref]), TRIED)
    assert whole(dba) == before
    done = command(runtime, str(stage.ids[ref]), BY_HAND)
    told = [[(move.trigger, move.to_state, move.passed_over) for move in each.moves] for each in (tried, done)]
    assert told[0] == told[1], "what it told is what is done"
    assert whole(dba) != before


def test_a_rehearsal_with_patches_and_breakers_changes_nothing(runtime: Runtime, dba: Dba, tmp_path: Path) -> None:
    land = Landscape(runtime, dba, tmp_path)
    bad, good = land.patch("no diff", "bad"), land.committed_patch(name="good")
    land.settle()
    for _ in range(runtime.settings.breaker_failure_threshold):
        with suppress(OSError, BreakerOpen), calling(runtime, land.project, "pytest"):
            raise OSError("away")
    breaker = known(runtime, land.project, "pytest")
    assert breaker.state == "OPEN"
    before = whole(dba), checkout(land.checkout)
    told = [
        drop_patch(runtime, str(bad), TRIED),
        override_roll_back(runtime, str(good), TRIED),
        reset_breaker(runtime, breaker.breaker_id, TRIED),
    ]
    assert [each.moves[-1].to_state for each in told] == ["dropped", "rolled_back", "CLOSED"]
    assert (whole(dba), checkout(land.checkout)) == before


@pytest.mark.parametrize("command", [complete_task, fail_task, reset_task, skip_step])
def test_a_task_whose_patch_is_on_its_way_is_left_alone(
    runtime: Runtime, dba: Dba, tmp_path: Path, command: Any
) -> None:
    land = Landscape(runtime, dba, tmp_path)
    land.applied_patch(name="t")
    before = whole(dba)
    with pytest.raises(CannotOverride, match=r"the patch demo/w/t\^1 of task/demo/w/t is being processed"):
        command(runtime, "task/demo/w/t", BY_HAND)
    assert whole(dba) == before
