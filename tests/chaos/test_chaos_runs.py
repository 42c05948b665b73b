"""Whole runs on a whole installation: every part a real process, killed and wiped while the work goes on."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlock.workers.client.client import Client
from interlock.workers.orchestration.run_view import RunView, Watch
from interlock.workers.orchestration.submission import Run, submit
from interlock.workflows.plan.read import read_plan
from tests.chaos.installation import Installation
from tests.sleepers import lasting, sleepers
from tests.waiting import eventually

ENDS_SECONDS = 150.0

CHAIN = """
name: chain
defaults: {retries: 4, backoff: {base: 1s, cap: 2s}}
workstreams:
  - id: one
    tasks:
%s
  - id: two
    depends_on: [one]
    tasks:
      - {id: last, command: [echo, done]}
"""

CRITICAL = """
name: critical
repository: {path: repository}
workstreams:
  - id: broken
    critical: true
    tasks:
      - {id: good, command: [echo, fine]}
      - {id: bad, critical: true, retries: 0, depends_on: [good], shell: "echo it cannot be done >&2; exit 3"}
      - {id: after, depends_on: [bad], command: [echo, never]}
  - id: later
    depends_on: [broken]
    tasks:
      - {id: never, command: [echo, never]}
"""


def steps(number: int, shell: str) -> str:
    """A chain of tasks, each writing its name and attempt into a file before it works."""
    lines = []
    for n in range(number):
        after = f"depends_on: [s{n - 1}], " if n else ""
        lines.append(f'      - {{id: s{n}, {after}shell: "echo s{n} >> began; {shell}; echo s{n} >> ended"}}')
    return "\n".join(lines)


def accepted(client: Client, directory: Path, plan: str) -> Run:
    return submit(client.runtime, read_plan(plan), by="test", directory=directory)


def watched(client: Client, run: Run, meanwhile: Callable[[], object] = lambda: None) -> RunView:
    """Watch a run until it has settled, and do something meanwhile."""
    watch = Watch(client.runtime, run.id)

    def settled() -> bool:
        watch.look()
        meanwhile()
        return watch.view.settled

    eventually(settled, timeout=ENDS_SECONDS, every=0.1)
    return watch.view


def once(action: Callable[[], object], when: Callable[[], bool]) -> Callable[[], None]:
    """Do `action` the first time that `when` holds, and again if it failed."""
    done: list[object] = []

    def look() -> None:
        if not done and when():
            action()
            done.append(True)

    look.done = done  # type: ignore[attr-defined]
    return look


def began(directory: Path, step: str, times: int = 1) -> Callable[[], bool]:
    """Whether the command of a step has begun so often: its task is running some time before."""
    file = directory / "began"
    return lambda: file.exists() and file.read_text().split().count(step) >= times


def states(rows: Any) -> set[str]:
    return {row["state"] for row in rows.values()}


def test_a_worker_killed_in_mid_task_costs_a_retry_and_its_command_dies_with_it(
    installation: Installation, tmp_path: Path
) -> None:
    with installation.client() as client:
        run = accepted(client, tmp_path, CHAIN % steps(3, "until test -e go; do sleep 0.1; done"))

        def kill() -> None:
            ((pid,),) = installation.sql(
                "SELECT (i.context->>'pid')::int FROM tasks t JOIN workflow_instances i ON i.id = t.worker_id"
                " WHERE t.run_id = %s AND t.state = 'running'",
                run.id,
            )
            os.kill(pid, signal.SIGKILL)

        killed = once(kill, began(tmp_path, "s0"))
        go = once((tmp_path / "go").touch, began(tmp_path, "s0", times=2))
        view = watched(client, run, lambda: (killed(), go()))
        assert killed.done  # type: ignore[attr-defined]
        assert view.run["state"] == "succeeded"
        assert (tmp_path / "began").read_text().split() == ["s0", "s0", "s1", "s2"]
        assert (tmp_path / "ended").read_text().split() == ["s0", "s1", "s2"], "the killed worker's command went on"
        (retries,) = [task["retry_count"] for task in view.tasks.values() if task["entity_id"].endswith("s0")]
        assert retries == 1


def test_a_wiped_broker_and_a_killed_database_do_not_stop_a_run(installation: Installation, tmp_path: Path) -> None:
    with installation.client() as client:
        run = accepted(client, tmp_path, CHAIN % steps(4, "sleep 0.3"))
        assert client.runtime.redis is not None
        flush = once(client.runtime.redis.flushall, began(tmp_path, "s0"))
        crash = once(lambda: os.kill(installation.part("postgres")["pid"], signal.SIGQUIT), began(tmp_path, "s2"))
        view = watched(client, run, lambda: (flush(), crash()))
        assert flush.done  # type: ignore[attr-defined]
        assert crash.done  # type: ignore[attr-defined]
        assert view.run["state"] == "succeeded"
        ended = (
            (tmp_path / "ended").read_text().split()
        )  # at least once each, in order: a lost report is a lost worker's
        assert list(dict.fromkeys(ended)) == ["s0", "s1", "s2", "s3"] == sorted(set(ended))
        left = "SELECT count(*) FROM run_signals WHERE run_id = %s"
        eventually(lambda: installation.sql(left, run.id) == [(0,)], timeout=ENDS_SECONDS)


def test_a_critical_failure_ends_the_run_cancels_the_rest_and_archives(
    installation: Installation, tmp_path: Path
) -> None:
    repository(tmp_path / "repository")
    with installation.client() as client:
        view = watched(client, accepted(client, tmp_path, CRITICAL))
        tasks = {task["entity_id"].rpartition("/")[2]: task for task in view.tasks.values()}
        assert view.run["state"] == "failed"
        assert {name: task["state"] for name, task in tasks.items()} == {
            "good": "completed",
            "bad": "failed",
            "after": "cancelled",
            "never": "cancelled",
        }
        assert {row["entity_id"].rpartition("/")[2]: row["state"] for row in view.workstreams.values()} == {
            "broken": "failed",
            "later": "cancelled",
        }
        archived = eventually(lambda: list(installation.settings.archive_directory.glob("*/broken/reason.json")))
        said = json.loads(archived[0].read_text())
        assert "critical" in json.dumps(said), said


def test_cancelling_stops_what_runs(installation: Installation, tmp_path: Path) -> None:
    with installation.client() as client:
        run = accepted(client, tmp_path, CHAIN % steps(2, f"sleep {lasting(60)}"))
        cancel = once(
            lambda: client.fire(run.id, "cancel", by="test", data={"reason": "enough"}),
            began(tmp_path, "s0"),
        )
        view = watched(client, run, cancel)
        assert view.run["state"] == "canceled"
        assert states(view.tasks) == {"cancelled"}
        eventually(lambda: not sleepers(lasting(60)), timeout=30)
        assert not (tmp_path / "ended").exists()


def repository(path: Path) -> None:
    """A repository with one commit."""
    path.mkdir()
    (path / "file").write_text("one\n")
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=path, check=True)
