"""An installation with everything that commands must not reach, and each way in which it runs untrusted commands."""

import os
import re
import select
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict
from uuid_utils.compat import uuid7

from interlock.supervisor.home import home_of
from interlock.supervisor.servers import endpoints
from interlock.workers.git.ref_names import branch_name
from interlock.workers.git.rollback_plan import CompensationPlan
from interlock.workers.git.worktree import Worktree, open_worktree
from interlock.workers.isolation.apart import Isolation
from interlock.workers.operations.bisect import NothingToFind, find_regression
from interlock.workers.operations.rollback import CompensationFailed, compensation_plan, roll_back
from interlock.workers.pool import work_loop
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workers.system.users import commands_account, spawn_options
from interlock.workflows.errors import InterlockError
from tests.attempts import ATTEMPTS, CONTROLS, TOGETHER, script
from tests.crewing import hand
from tests.driving import applied, drain_all, reported, state
from tests.landscape import Landscape
from tests.repositories import git, put
from tests.rights import known, operate
from tests.waiting import eventually

MIB = 1 << 20
SOCKETS = ("tcp", "udp", "abstract", "path")


@dataclass(frozen=True)
class Outcome:
    """The reported end of a command: its output, and whether it succeeded."""

    words: str
    success: bool


class Ground:
    """One installation, with a workstream and a repository. `sandbox` is the value of INTERLOCK_SANDBOX."""

    def __init__(self, top: Path, database_url: str, broker_url: str, dba: "psycopg.Connection[Any]", sandbox: str):
        self.top, self.dba, self._made = top, dba, 0
        self.has_patch = False
        self.settings = Settings(
            home=top / "home",
            database_url=database_url,
            broker_url=broker_url,
            sandbox=sandbox,
            max_attempts=1,
            command_processes=64,
            command_file_bytes=8 * MIB,
            command_disk_bytes=64 * MIB,
            command_memory_bytes=150 * MIB,
            command_tmp_bytes=4 * MIB,
        )
        self.account = commands_account(self.settings)
        self.long = f"9{os.getpid() % 10_000:04}{int.from_bytes(os.urandom(2), 'big'):05}"
        home = home_of(self.settings)
        home.create()
        known = conninfo_to_dict(database_url)
        password = str(known["password"])
        passwords = {str(known["user"]): password}
        endpoints.save(home, endpoints.Servers(database_url=database_url, postgres_passwords=passwords))
        put(top, {"home/keys/anchor.key": password, "someone/.ssh/id": password})
        for each in ("home/keys", "someone"):
            (top / each).chmod(0o700)
        (top / "public").mkdir()
        (top / "public").chmod(0o777)
        self.variables = {"TOP": top, "PASSWORD": password, "LONG": self.long, "WORKER": os.getpid()}
        self.variables |= {"PYTHON": sys.executable, "PACKAGES": sysconfig.get_path("purelib")}

    @contextmanager
    def furnished(self) -> Iterator["Ground"]:
        """Add listening sockets, another running command, and a repository with another worktree."""
        with ExitStack() as open_:
            runtime = Runtime(self.settings)
            open_.callback(runtime.close)
            self.land = Landscape(runtime, self.dba, self.top, project=str(uuid7()))
            put(self.land.checkout, {"Makefile": "judge:\n\tfalse\n"})
            git(self.land.checkout, "add", "-A")
            git(self.land.checkout, "commit", "-qm", "A judge")
            self.sockets = {name: open_.enter_context(self._listening(name)) for name in SOCKETS}
            for name in ("tcp", "udp"):
                self.variables[name.upper()] = self.sockets[name].getsockname()[1]
            another = open_.enter_context(self._another())
            self.variables |= {"ANOTHER": another.pid, "OTHERS": self._others()}
            open_.callback(self.bury)
            yield self

    def _listening(self, name: str) -> socket.socket:
        family = socket.AF_INET if name in ("tcp", "udp") else socket.AF_UNIX
        made = socket.socket(family, socket.SOCK_DGRAM if name == "udp" else socket.SOCK_STREAM)
        self.variables["ABSTRACT"] = f"interlock-{self.long}"
        unix = f"\0interlock-{self.long}" if name == "abstract" else str(self.top / "socket")
        made.bind(("127.0.0.1", 0) if family == socket.AF_INET else unix)
        if name != "udp":
            made.listen()
        if name == "path":
            os.chmod(unix, 0o777)  # noqa: S103 - as PostgreSQL's is
        return made

    @contextmanager
    def _another(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a process, as the command of another task, for the duration of a block."""
        given = {"PATH": os.environ["PATH"], "SECRET_OF_ANOTHER": "x"}
        with subprocess.Popen(["sleep", "600"], env=given, cwd="/", **spawn_options(self.account)) as process:  # type: ignore[call-overload]
            yield process
            process.kill()

    def _others(self) -> Path:
        path = self.settings.worktrees_directory / "r" / "other"
        found = open_worktree(
            self.land.checkout, "main", branch_name("r", "other"), path, isolation=Isolation(self.account)
        )
        assert isinstance(found, Worktree), found
        (path / "secret").write_text(str(self.variables["PASSWORD"]))
        return path

    def name(self) -> str:
        """A new instance name, unique among the installations that share a database."""
        self._made += 1
        return f"n{self.long}-{self._made}"

    def line(self, text: str) -> str:
        """A script, preceded by the variables that it uses."""
        return "\n".join([*(f"{name}={quote(str(value))}" for name, value in self.variables.items()), text])

    def alive(self) -> list[psutil.Process]:
        """The processes that commands left running."""
        return [each for each in psutil.process_iter() if self.long in _words(each)]

    def bury(self) -> None:
        """Kill the processes that commands left running."""
        for each in self.alive():
            each.kill()

    def seen(self, what: str, ended: Outcome) -> bool:
        """Whether an attempt succeeded, by its traces outside or by the reported outcome."""
        if what in SOCKETS:
            return bool(select.select([self.sockets[what]], [], [], 0)[0])
        if what in SEEN:
            return SEEN[what](self, ended)
        return (self.top / what).exists()

    def judged_well(self) -> bool:
        """Whether a gate passes that fails on the base branch."""
        gate = self.land.gate(["make", "judge"], self.name())
        self.land.settle()
        return state(self.land.client, gate) == "PASSED"

    def still_alive(self) -> bool:
        """Whether a process outlives its command by more than 3 s."""
        try:
            eventually(lambda: not self.alive(), timeout=3, every=0.25)  # each look reads all of /proc
        except AssertionError:
            return True
        return False


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


SEEN: Mapping[str, Callable[[Ground, Outcome], bool]] = {
    "success": lambda _, ended: ended.success,
    "long": lambda _, ended: len(ended.words) > 64 << 10,
    "alive": lambda ground, _: ground.still_alive(),
    "judge": lambda ground, _: ground.judged_well(),
    "table": lambda ground, _: ground.dba.execute("SELECT FROM phases WHERE phase_id = 'f'").fetchone() is not None,
    "memory": lambda _, ended: "of memory together" not in ended.words,
    "disk": lambda _, ended: "to disk, of 64 MiB" not in ended.words,
}


def task(ground: Ground, line: str) -> Outcome:
    """Run a line as a task, by a worker."""
    land, name = ground.land, ground.name()
    said = {"kind": "shell", "command": line, "workstream_id": str(land.workstream), "max_retries": 0}
    made = land.create("task", f"demo/w/{name}", said | {"run_id": str(land.run)})
    if state(land.client, land.run) != "running":
        of_all = {"workstream_id": str(land.workstream), "run_id": str(land.run)}
        land.create("task", "demo/w/last", {"kind": "agent", **of_all})  # with it open, the workstream goes on
        applied(land.client, land.run, "start")
        applied(land.client, land.workstream, "all_tasks_created")
    applied(land.client, made, "scheduler_assigned")
    assert work_loop.work(land.runtime, known(hand(land.runtime, f"hand-{name}"))) == 1
    drain_all(land.runtime)
    return Outcome(_told(reported(land.client, made)), state(land.client, made) == "completed")


def gate(ground: Ground, line: str) -> Outcome:
    """Run a line as a gate, by the effect `run_gate`."""
    made = ground.land.gate(line, ground.name())
    ground.land.settle()
    return Outcome(_told(ground.land.said(made)), state(ground.land.client, made) != "FAILED")


def patch(ground: Ground, line: str) -> Outcome:
    """Run a line from a patch's file, by a gate."""
    name = ground.name()
    ground.land.committed_patch({f"{name}.sh": f"{line}\n"}, name)
    return gate(ground, f"exec sh {name}.sh")


def compensation(ground: Ground, line: str) -> Outcome:
    """Run a line by a rollback, which runs a gate as its test suite."""
    land, name = ground.land, ground.name()
    operate(land.runtime, "ann")
    land.gate(line, name, started=False)
    entry = land.committed_patch({f"{name}.txt": "x\n"}, name)
    made = compensation_plan(land.runtime, entry).model_dump(mode="json")
    made["actions"].append({"action": "run_tests", "test_suite": name, "required": True})
    try:
        roll_back(land.runtime, entry, CompensationPlan.model_validate(made), by="ann", reason="a test")
    except InterlockError as refused:
        return Outcome(f"{type(refused).__name__}: {refused}", not isinstance(refused, CompensationFailed))
    return Outcome("", success=True)


def regression(ground: Ground, line: str) -> Outcome:
    """Run a line by the search for a regression, which runs a gate on each tree."""
    land = ground.land
    if not ground.has_patch:  # which all searches then suspect
        ground.has_patch = bool(land.committed_patch({"suspect.txt": "x\n"}, ground.name()))
    try:
        find_regression(land.runtime, line, workstream_ref=str(land.workstream))
    except InterlockError as refused:
        return Outcome(f"{type(refused).__name__}: {refused}", not isinstance(refused, NothingToFind))
    return Outcome("", success=True)


ACTORS = {each.__name__: each for each in (task, gate, patch, compensation, regression)}


def _told(said: Mapping[str, Any]) -> str:
    return "\n".join(str(said.get(each, "")) for each in ("reason", "error", "stdout", "stderr"))


def tried(ground: Ground, act: Callable[[Ground, str], Outcome]) -> dict[str, bool]:
    """Run all attempts and controls; returns for each whether it succeeded."""
    names = [*CONTROLS, *TOGETHER]
    ended = act(ground, ground.line(script([*CONTROLS.values(), *(ATTEMPTS[each].line for each in TOGETHER)])))
    through = re.findall(r"through:([ \d]*)\.", ended.words)
    assert through, f"the script did not reach its end: {ended.words[-2000:]}"
    found = {name: str(number) in through[-1].split() for number, name in enumerate(names)}
    for name in TOGETHER:
        found[name] |= bool(ATTEMPTS[name].seen) and ground.seen(ATTEMPTS[name].seen, ended)
    for name, each in ATTEMPTS.items():
        if each.alone:
            found[name] = ground.seen(each.seen, act(ground, ground.line(f"{each.line}\nexit 9")))
    return found
