"""A worker is killed at git commands or before its report, or loses its lease: the effect ends once, and right."""

import os
import random
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import UUID

import pytest

from interlock.db.connection import transaction
from interlock.db.core import effects as rows
from interlock.supervisor.environment import environment
from interlock.workers import effect_runner
from interlock.workers.runtime import Runtime
from interlock.workers.runtime import runtime as process_runtime
from interlock.workflows.errors import StaleLease
from tests.callers import FORKS, Crowd, crowd
from tests.driving import drain_all, state, trail
from tests.landscape import ONE_LINE, Landscape
from tests.repositories import git, killing

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
PROCESSES, KEYS, EFFECTS_EACH, KILLS = 5, 3, 18, 2


def run_and_die(env: Mapping[str, str], effect_id: UUID) -> None:
    """Run an effect in a process that dies before it can report (or before that, at a git command)."""
    os.environ.clear()
    os.environ.update(env)
    effect_runner._report = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    effect_runner.run(process_runtime(), effect_id)


def kill(land: Landscape, effect_id: UUID, at: int, directory: Path) -> None:
    """Run an effect in a process that is killed at its `at`-th git command, or else before its report."""
    programs = directory / f"bin-{at}"
    env = environment(land.runtime.settings) | {"PATH": killing(programs, at)}
    victim = FORKS.Process(target=run_and_die, args=(env, effect_id))
    victim.start()
    victim.join()
    assert victim.exitcode == -signal.SIGKILL
    shutil.rmtree(programs)


def applying(land: Landscape) -> tuple[UUID, str]:
    entry = land.patch(dict(ONE_LINE))
    land.settle()
    land.fire(entry, "accept")
    return entry, "apply_patch"


def is_applied(land: Landscape, entry: UUID) -> None:
    assert state(land.client, entry) == "applied"
    assert git(land.place.path, "status", "--porcelain") == "M  app.py\n"


def committing(land: Landscape) -> tuple[UUID, str]:
    entry = land.applied_patch()
    land.leave({"left/by": "tests"})
    land.fire(entry, "tests_passed")
    return entry, "commit_patch"


def is_committed(land: Landscape, entry: UUID) -> None:
    assert state(land.client, entry) == "committed"
    assert git(land.checkout, "log", "--format=%s", land.place.branch) == "Mend\nFirst\n"
    assert git(land.place.path, "status", "--porcelain") == ""


def restoring(land: Landscape) -> tuple[UUID, str]:
    entry = land.applied_patch()
    land.fire(entry, "tests_failed", reason="3 failed")
    return entry, "restore_worktree"


def is_restored(land: Landscape, entry: UUID) -> None:
    assert git(land.place.path, "status", "--porcelain") == ""


def landing(land: Landscape) -> tuple[UUID, str]:
    land.committed_patch()
    land.validate()
    land.land()
    return land.workstream, "land_workstream"


def is_landed(land: Landscape, workstream: UUID) -> None:
    assert state(land.client, workstream) == "completed"
    assert git(land.checkout, "log", "--first-parent", "--format=%s", "main") == "Merge workstream demo/w\nFirst\n"
    assert git(land.checkout, "status", "--porcelain") == ""
    assert not land.place.path.exists()


def archiving(land: Landscape) -> tuple[UUID, str]:
    land.applied_patch()
    land.fail()
    return land.workstream, "archive_workstream"


def is_archived(land: Landscape, workstream: UUID) -> None:
    kept = git(land.checkout, "for-each-ref", "--format=%(refname)", "refs/interlock/archive").split()
    assert len(kept) == 1
    assert git(land.checkout, "show", f"{kept[0]}:app.py") == ONE_LINE["app.py"]
    assert {each.name for each in land.place.archive.iterdir()} == {"reason.json", "workstream.bundle"}
    assert not land.place.path.exists()


WORKS: Mapping[str, tuple[Callable[[Landscape], tuple[UUID, str]], Callable[[Landscape, UUID], None]]] = {
    "apply": (applying, is_applied),
    "commit": (committing, is_committed),
    "restore": (restoring, is_restored),
    "land": (landing, is_landed),
    "archive": (archiving, is_archived),
}


@pytest.mark.parametrize("name", WORKS)
def test_an_effect_killed_again_and_again_ends_once_and_right(
    make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path, name: str
) -> None:
    begin, ended = WORKS[name]
    land = Landscape(make_runtime(max_attempts=50), dba, tmp_path)
    instance, effect = begin(land)
    before = len(trail(land.client, instance))
    never = 10_000
    for at in (*sorted(random.sample(range(1, 12), KILLS)), never):
        kill(land, land.effect(instance, effect)["id"], at, tmp_path)
        land.make_due()
    land.settle()
    done = land.effect(instance, effect)
    assert (done["status"], done["attempts"]) == ("done", KILLS + 2)
    assert len(trail(land.client, instance)) <= before + 1, "its outcome was told once"
    ended(land, instance)


@pytest.mark.parametrize("name", WORKS)
def test_a_worker_whose_lease_passed_on_does_no_harm_and_cannot_report(
    runtime: Runtime, dba: Dba, tmp_path: Path, name: str
) -> None:
    begin, ended = WORKS[name]
    land = Landscape(runtime, dba, tmp_path)
    instance, effect = begin(land)
    with transaction(runtime.database) as connection:
        stale = rows.claim(connection, land.effect(instance, effect)["id"], holder="slow", lease_seconds=60)
    assert stale is not None
    land.make_due()
    effect_runner.run(runtime, stale["id"])
    effect_runner.EFFECTS[effect](runtime, stale)  # the slow one gets to work only now
    with pytest.raises(StaleLease), transaction(runtime.database) as connection:
        rows.finish(connection, stale, status="done")
    drain_all(runtime)
    ended(land, instance)


def hold_each_alone(told: Crowd, _: int, directory: Path) -> None:
    """Claim whatever is due until nothing is left; of a key, be the only holder."""
    runtime = Runtime(told.settings)
    told.wait()
    while True:
        with transaction(runtime.database) as connection:
            left = rows.count_by_status(connection)
            ids = (
                connection.exec_driver_sql("SELECT id FROM interlock.effects WHERE status = 'pending'").scalars().all()
            )
        if set(left) == {"done"}:
            return runtime.close()
        for effect_id in random.sample(list(ids), len(ids)):
            with transaction(runtime.database) as connection:
                claimed = rows.claim(connection, effect_id, holder=str(os.getpid()), lease_seconds=60)
            if claimed is None:
                continue
            alone = directory / str(claimed["exclusive"])
            os.close(os.open(alone, os.O_CREAT | os.O_EXCL))  # fails, and so this process, if another holds the key
            with transaction(runtime.database) as connection:
                rows.renew(connection, claimed, 60)
            alone.unlink()
            with transaction(runtime.database) as connection:
                rows.finish(connection, claimed, status="done")


def test_of_effects_with_one_key_never_two_are_leased_however_many_processes_ask(
    runtime: Runtime, dba: Dba, tmp_path: Path
) -> None:
    land = Landscape(runtime, dba, tmp_path)
    with transaction(runtime.database) as connection:
        wanted = [
            {
                "id": str(UUID(int=each)),
                "workflow_id": land.run,
                "version": 0,
                "name": "none",
                "exclusive": f"k{each % KEYS}",
            }
            for each in range(KEYS * EFFECTS_EACH)
        ]
        rows.intend(connection, wanted)
    (tmp_path / "held").mkdir()
    with crowd(runtime.settings, land.project, PROCESSES, hold_each_alone, tmp_path / "held"):
        pass  # they end by themselves, each well
    assert dba.execute("SELECT count(*), max(attempts) FROM effects").fetchone() == (KEYS * EFFECTS_EACH, 1)
