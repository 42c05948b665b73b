"""What a task printed can be read while it runs and afterwards, and whoever reads it knows whether it was changed."""

import json
import socket
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import RowMapping, select

from interlock.db.connection import transaction
from interlock.db.tables.orchestration import tasks
from interlock.workers.client.client import Client
from interlock.workers.pool import attempts, work_loop
from interlock.workers.pool.agent import Agent
from interlock.workers.pool.attempts import TaskAttempt
from interlock.workers.pool.output_files import path_of
from interlock.workers.pool.output_reading import OutputReading, OutputVerdict
from interlock.workers.runtime import Runtime
from tests.crewing import Site, hand
from tests.driving import drain_all, reported, state
from tests.rights import known
from tests.waiting import eventually

pytestmark = pytest.mark.integration
BOTH = ["sh", "-c", "echo out; echo err >&2; exit 3"]


def tried(runtime: Runtime, task: UUID) -> list[TaskAttempt]:
    with transaction(runtime.database) as connection:
        return attempts.of_task(connection, task)


def of(runtime: Runtime, task: UUID) -> RowMapping:
    with transaction(runtime.database) as connection:
        return connection.execute(select(tasks).where(tasks.c.task_id == task)).mappings().one()


def reading(runtime: Runtime, task: UUID, attempt: TaskAttempt) -> OutputReading:
    row = of(runtime, task)
    return OutputReading(runtime.settings, run_id=row["run_id"], task_id=task, kind=row["kind"], attempt=attempt)


def read(runtime: Runtime, task: UUID, attempt: TaskAttempt) -> tuple[str, OutputVerdict]:
    found = reading(runtime, task, attempt)
    return found.rest(attempt), found.verdict()


def file_of(runtime: Runtime, task: UUID, attempt: TaskAttempt) -> Path:
    return path_of(runtime.settings, of(runtime, task)["run_id"], task, attempt.claim)


@pytest.mark.promise("O19")
def test_history_has_the_digest_of_what_each_attempt_printed(runtime: Runtime, client: Client, site: Site) -> None:
    (task,) = site.queue(1, command=BOTH, max_retries=0)
    assert work_loop.work(runtime, known(hand(runtime))) == 1
    drain_all(runtime)
    (attempt,) = tried(runtime, task)
    text, verdict = read(runtime, task, attempt)
    assert sorted(text.splitlines()) == ["err", "out"]
    assert verdict == OutputVerdict(verified=True)
    assert reported(client, task)["output"] == {
        "bytes": 8,
        "sha256": sha256(text.encode()).hexdigest(),
        "left_out_bytes": 0,
    }
    assert (attempt.exit_code, attempt.trigger) == (3, "execution_failed")


def test_a_changed_file_is_told_from_one_that_is_gone_and_one_elsewhere(
    runtime: Runtime, client: Client, site: Site
) -> None:
    (task,) = site.queue(1, command=["echo", "true"])
    hired = hand(runtime, more={"host": socket.gethostname()})
    assert work_loop.work(runtime, known(hired)) == 1
    drain_all(runtime)
    (attempt,) = tried(runtime, task)
    file = file_of(runtime, task, attempt)
    file.write_text("false")
    text, verdict = read(runtime, task, attempt)
    assert (text, verdict.verified) == ("false", False)
    assert verdict.note
    assert "the file was changed: history says 5 bytes" in verdict.note
    file.unlink()
    text, verdict = read(runtime, task, attempt)
    assert (text, verdict.verified) == ("", None)
    assert verdict.note
    assert "INTERLOCK_KEEP_OUTPUT_DAYS" in verdict.note
    _, verdict = read(runtime, task, replace(attempt, host="build-7"))
    assert verdict.note
    assert "on the machine build-7" in verdict.note


def test_output_is_read_while_it_is_printed_and_kept_of_a_task_that_is_cancelled(
    runtime: Runtime, client: Client, site: Site
) -> None:
    (task,) = site.queue(1, command=["sh", "-c", "echo begun; sleep 60"])
    worker = Thread(target=work_loop.work, args=(runtime, known(hand(runtime))), daemon=True)
    worker.start()
    eventually(lambda: tried(runtime, task) != [])
    (attempt,) = tried(runtime, task)
    follower = reading(runtime, task, attempt)
    eventually(lambda: follower.more() == "begun\n")
    client.fire(task, "user_cancelled", by="ann")
    drain_all(runtime)
    worker.join()
    (attempt,) = tried(runtime, task)
    assert (follower.rest(attempt), attempt.trigger) == ("", "user_cancelled")
    verdict = follower.verdict()
    assert verdict.verified is None
    assert verdict.note == "history has no digest: user_cancelled ended the attempt before its worker reported"


def test_an_agents_output_is_what_it_reported_and_does_not_say_who_reports(
    runtime: Runtime, client: Client, site: Site
) -> None:
    (task,) = site.queue(1, kind="agent")
    with Agent("agent-7", runtime=runtime) as agent:
        claim = agent.claim()
        assert claim is not None
        forged: dict[str, Any] = {"worker": "ann", "claim": 1, "output": {"bytes": 0, "sha256": "0" * 64}}
        agent.finish(claim.token, output={"stdout": "written"} | forged)
        drain_all(runtime)
    assert state(client, task) == "completed"
    (attempt,) = tried(runtime, task)
    assert read(runtime, task, attempt) == ("written\n", OutputVerdict(None, "as its agent reported it"))
    said = reported(client, task)
    assert (said["worker"], said["claim"]) == ("agent-7", claim.id), json.dumps(said)
