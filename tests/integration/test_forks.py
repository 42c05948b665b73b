"""Forks of the supervisor: what they find done already, and what they do for themselves."""

import signal
import subprocess
import sys

import pytest

from interlock.supervisor.processes.fork import CAN_FORK

pytestmark = [pytest.mark.integration, pytest.mark.skipif(not CAN_FORK, reason="parts are forks on Linux only")]
# Forks three times: with the environment that was prepared, with a file of its own, with another project.
READS = """
import os, sys
from interlock.supervisor.processes.fork import fork, preload
from interlock.workers.settings import settings
base = {**os.environ, "INTERLOCK_PROJECT": "a", "DATABASE_URL": "postgresql://x", "BROKER_URL": "redis://x"}
before = dict(os.environ)
preload(base)
assert os.environ == before
prepared = settings()
def program():
    from interlock.workers.main import app
    print(settings() is prepared, settings().project, app.finalized)
for more in {}, {"INTERLOCK_READY_FILE": "r"}, {"INTERLOCK_PROJECT": "b"}:
    fork("t", program, base | more, sys.stdout.buffer).wait()
"""
# Prints how many sets of definitions are checked before the forks, and whether a user's module was imported for that.
COMPOSES = """
import os, sys
from interlock.supervisor.processes.fork import preload
from interlock.workflows.catalogue import catalogue
own = sys.argv[1]
base = {**os.environ, "INTERLOCK_DEFINITIONS": own, "DATABASE_URL": "postgresql://x", "BROKER_URL": "redis://x"}
preload(base)
print(catalogue.cache_info().currsize, own in sys.modules)
"""
# Prints the death signal that a pool process sets itself (prctl(2), PR_GET_PDEATHSIG), and whether C was parsed for it.
DIES = """
import ctypes, sys
from celery import platforms
from interlock.workers.broker import startup_patch
startup_patch.install()
platforms.set_pdeathsig("SIGKILL")
found = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(found))
print(found.value, "cffi.cparser" in sys.modules)
"""


def printed(program: str, *words: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_part_reads_settings_only_if_they_are_not_those_that_were_prepared() -> None:
    assert printed(READS) == ["True a True", "True a True", "False b True"]


def test_definitions_are_checked_once_for_all_parts_but_a_users_modules_are_imported_in_the_parts_only() -> None:
    assert printed(COMPOSES, ",") == ["1 False"]
    assert printed(COMPOSES, "tests.integration.mines") == ["0 False"]


def test_a_pool_process_is_killed_when_its_node_ends_and_parses_no_c_for_that() -> None:
    assert printed(DIES) == [f"{signal.SIGKILL.value} False"]
