"""What other people's commands try, by each way in which they are run: the table of docs/security.md, tried whole."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from typing import Any

import psycopg
import pytest

from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.isolation.boundary import boundary
from interlock.workers.system import process_privacy, process_tree
from tests import databases
from tests.attempts import ATTEMPTS, CONTROLS
from tests.escaping import ACTORS, Ground, Outcome, tried
from tests.homes import open_directory

pytestmark = pytest.mark.integration
Act = Callable[[Ground, str], Outcome]
actors = pytest.mark.parametrize("act", ACTORS.values(), ids=ACTORS.keys())


@pytest.fixture(scope="module")
def database(servers: Servers, template: str) -> Iterator[tuple[str, "psycopg.Connection[Any]"]]:
    """One for all actors, and a superuser's connection to it."""
    with (
        databases.copy_of(servers, template) as url,
        psycopg.connect(databases.as_superuser(servers, url), autocommit=True) as dba,
    ):
        yield url, dba


@contextmanager
def alone() -> Iterator[None]:
    """Only one of these tests runs on this machine during the block, whichever checkout it is of.

    One of the attempts starts processes without end. The kernel counts those of all commands of an account together, so
    shells without a sandbox could not fork beside it.
    """
    root = os.open("/", os.O_RDONLY)
    try:
        flock(root, LOCK_EX)
        yield
    finally:
        os.close(root)


@pytest.fixture
def ground(
    request: pytest.FixtureRequest,
    database: tuple[str, "psycopg.Connection[Any]"],
    broker_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Ground]:
    """An installation; its parameter says whether its commands have a sandbox."""
    url, dba = database
    dba.execute("DROP TABLE IF EXISTS forged")
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "x")
    with alone(), open_directory() as top:
        made = Ground(top, url, broker_url, dba, request.param)
        if request.param == "auto" and (found := boundary(made.settings)).bubblewrap is None:
            pytest.skip(f"no sandbox here: {found.why}")
        with made.furnished():
            process_privacy.hide(made.settings)  # as a worker does, whom this process stands for
            yield made
            process_tree.set_dumpable(True)


@pytest.mark.parametrize("ground", ["auto"], indirect=True, ids=["sandbox"])
@actors
def test_nothing_escapes_from_the_sandbox(ground: Ground, act: Act) -> None:
    found = tried(ground, act)
    assert [name for name in CONTROLS if not found[name]] == [], "it failed for want of its tools"
    assert [name for name in ATTEMPTS if found[name]] == []


@pytest.mark.parametrize("ground", ["off"], indirect=True, ids=["none"])
@actors
def test_without_a_sandbox_it_is_as_the_table_says(ground: Ground, act: Act) -> None:
    found = tried(ground, act)
    assert [name for name in CONTROLS if not found[name]] == [], "it failed for want of its tools"
    table = {name: each.open_as_root if ground.account else each.open_as_user for name, each in ATTEMPTS.items()}
    wrong = {name: "succeeds" if found[name] else "stopped" for name in ATTEMPTS if found[name] is not table[name]}
    assert wrong == {}, "the table says otherwise"
