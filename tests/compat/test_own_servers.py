"""The user's own servers: PostgreSQL 15 with Redis, and with RabbitMQ. Ours are not started here.

Each test has a database, and a Redis database or RabbitMQ vhost, of its own, and leaves nothing in anybody's.
"""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import CheckViolation, RestrictViolation
from redis import Redis

from interlock.db.audit import verify
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers import sweeps
from interlock.workers.broker.event_stream import STREAM
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases
from tests.driving import make_due, outcome, state, swept
from tests.nodes import node
from tests.waiting import eventually

pytestmark = pytest.mark.compat
HOST = "127.0.0.1"
POSTGRES = os.environ.get("DATABASE") or f"postgresql://postgres@{HOST}:5432/postgres"
OWN = Servers(database_url=POSTGRES, owner_url=POSTGRES)
CLAIM = "interlock-test-claim"
CLAIM_SECONDS = 600


def required(port: int, what: str) -> None:
    """Skip unless something listens on a port."""
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) != 0:
            pytest.skip(f"no {what} answers on {HOST}:{port}")


@pytest.fixture(scope="module")
def own_template() -> Iterator[str]:
    """The name of a migrated database on the machine's PostgreSQL."""
    try:
        psycopg.connect(POSTGRES, connect_timeout=5).close()
    except psycopg.OperationalError as refused:
        pytest.skip(f"no PostgreSQL of the machine's own: {refused}")
    with databases.copy_of(OWN, "template1") as url:
        databases.prepare(url)
        yield url.rpartition("/")[2]


@pytest.fixture
def own_database(own_template: str) -> Iterator[str]:
    """A copy of it."""
    with databases.copy_of(OWN, own_template) as url:
        yield url


@contextlib.contextmanager
def redis_of_its_own() -> Iterator[str]:
    """An empty database of the machine's Redis, claimed so that no other test takes it."""
    required(6379, "Redis")
    for index in range(15, 0, -1):
        url = f"redis://{HOST}:6379/{index}"
        with Redis.from_url(url) as connection:
            if not connection.set(CLAIM, os.getpid(), nx=True, ex=CLAIM_SECONDS):
                continue
            if connection.dbsize() != 1:
                connection.delete(CLAIM)
                continue
            try:
                yield url
            finally:
                for key in [*connection.scan_iter("interlock:*"), CLAIM]:
                    connection.delete(key)
                assert connection.dbsize() == 0
            return
    pytest.skip("no empty database left in the machine's Redis")


@contextlib.contextmanager
def rabbitmq_of_its_own() -> Iterator[str]:
    """A vhost of the machine's RabbitMQ."""
    required(5672, "RabbitMQ")
    if shutil.which("rabbitmqctl") is None:
        pytest.skip("no rabbitmqctl to make a vhost with: the queues would be everybody's")
    vhost = f"interlock_test_{token_hex(6)}"
    if (made := rabbitmqctl("add_vhost", vhost)).returncode:
        pytest.skip(f"rabbitmqctl may not make a vhost: {made.stderr.strip()[-200:]}")
    try:
        rabbitmqctl("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*").check_returncode()
        yield f"amqp://guest:guest@{HOST}:5672/{vhost}"
    finally:
        rabbitmqctl("delete_vhost", vhost).check_returncode()


def rabbitmqctl(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["rabbitmqctl", "-q", *arguments], capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(params=[redis_of_its_own, rabbitmq_of_its_own], ids=["redis", "rabbitmq"])
def own_broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker of the machine's, with nothing in it."""
    with request.param() as url:
        yield url


@pytest.fixture
def client(own_database: str, own_broker: str, tmp_path: Path) -> Iterator[Client]:
    """A client of these servers, with a real worker behind it."""
    settings = Settings(home=tmp_path / "home", database_url=own_database, broker_url=own_broker)
    with (
        node(settings, tmp_path, "worker", "-Q", "triggers,sweeps,effects", "-c", "2", "-E"),
        Client(Runtime(settings)) as made,
    ):
        yield made


def applied(client: Client, ref: str | UUID, *triggers: str, by: str) -> None:
    """Fire triggers; the worker must apply each."""
    ids = [client.fire(ref, trigger, by=by).request_id for trigger in triggers]
    settled = client.wait(ids, timeout_seconds=30)
    assert [receipt.status for receipt in settled] == ["applied"] * len(ids), settled


def test_a_story_goes_to_done_an_approval_expires_and_the_stream_tells_all(client: Client, project: str) -> None:
    story = client.create("story", "S-1", project=project, context={"author": "ann"})["id"]
    applied(client, story, "design_complete", "start_coding", "submit_pr", by="ann")
    review = client.create("pr_review", "PR-1", project=project, context={"author": "ann", "story_id": "S-1"})["id"]
    applied(client, review, "start_review", "request_changes", "resubmit", "approve", by="bob")
    (merge,) = client.wait([client.fire(review, "merge", by="bob").request_id], timeout_seconds=30)
    assert merge.status == "waiting"
    applied(client, outcome(client, merge.request_id)["held_by"], "approve", by="cyd")
    eventually(lambda: state(client, review) == "merged", timeout=30)
    eventually(lambda: state(client, story) == "testing", timeout=30)
    applied(client, story, "tests_pass", by="ann")
    assert state(client, story) == "done"
    verdict = verify.verify(client.runtime.database)
    assert (verdict.ok, verdict.instances, verdict.transitions) == (True, 3, 11), verdict.problems
    approval = client.create("approval", "A-1", project=project)["id"]
    with psycopg.connect(client.runtime.settings.database_url or "", autocommit=True) as dba:
        assert make_due(dba) == 2, "that of the merge's approval, too, which is decided"
    swept(client.runtime, "dispatch")
    eventually(lambda: state(client, approval) == "expired", timeout=30)
    redis = client.runtime.redis
    carried = eventually(lambda: sweeps.SWEEPS["relay"](client.runtime) or redis is None, timeout=30)
    assert redis is None or (carried, redis.xlen(STREAM)) == (12, 12)


def test_postgresql_15_refuses_by_itself_what_18_does(own_database: str) -> None:
    with (
        Client(Runtime(Settings(database_url=own_database, broker_url="redis://127.0.0.1:1/0"))) as client,
        psycopg.connect(own_database, autocommit=True) as dba,
    ):
        story: Any = client.create("story", "S-1", project=UUID(int=1))["id"]
        dba.execute("SET session_replication_role = replica")
        for statement, error in (
            ("UPDATE workflow_instances SET current_state = 'done', version = 1", CheckViolation),
            ("TRUNCATE workflow_transitions CASCADE", RestrictViolation),
            ("DELETE FROM workflow_instances", RestrictViolation),
        ):
            with pytest.raises(error):
                dba.execute(statement)
        assert state(client, story) == "analysis"
