"""The real `interlock`, run as somebody at a terminal (or a program) runs it."""

import contextlib
import fcntl
import json
import multiprocessing
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import traceback
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Lock
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

from interlock.db.connection import make_engine
from interlock.supervisor.environment import environment
from interlock.workers import runtime
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings, settings
from tests.rights import fire

COMMAND = "interlock.cli.main"
ANSWER_SECONDS = 90.0
LOOK_SECONDS = 0.3  # between two looks, each a command, at what takes its time: a look costs as much as 2 s of waiting
END_SECONDS = 5.0
LINES, COLUMNS = 30, 120  # of a screen
COLOUR = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]")
SCREEN = re.compile(r"(?:\x1b\[[0-9]*[A-Z])+")  # the cursor goes back to where it draws anew
# A process of its own for each command, forked from one that has imported them all already: importing takes a second
# each time, and there are hundreds. `execute` is the whole thing, for the tests that start from nothing.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        COMMAND,
        "celery.app.amqp",
        "celery.app.control",
        "celery.app.events",
        "celery.apps.beat",
        "celery.apps.worker",
        "celery.bin.celery",
        "celery.concurrency.prefork",
        "celery.fixups.django",
        "demo.__main__",
        "interlock.cli.lib.errors",
        "interlock.workers.broker.app",
        "interlock.workers.broker.pubsub",
        "interlock.workers.broker.wakeup_sender",
        "interlock.workers.pool.celery_pool",
        "interlock.workers.tasks",
        "kombu.transport.redis",
        "pytest",
        "tests.chaos.machines_of_chaos",
        "typer._adapters",
        __name__,
        "tests.cli.forkable",
    ]
)


Words = Sequence[str | bytes]


@dataclass(frozen=True)
class Answer:
    """What a command left: its exit code and what it wrote."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def json(self) -> Any:
        """Its standard output, which must be one JSON value and nothing else."""
        return json.loads(self.out)

    def is_one_clear_line(self, *naming: str) -> None:
        """It failed or was refused, and says why in one line that names what it must; never a traceback."""
        assert "Traceback" not in self.said, self.said
        assert self.err.startswith("refused: " if self.code == 2 else "failed: "), self.said
        assert self.err.count("\n") == 1, self.err
        for name in naming:
            assert name in self.err, self.err


def json_values(text: str) -> list[Any]:
    """The JSON values that `text` has, one after another."""
    found, rest = [], text.strip()
    while rest:
        value, end = json.JSONDecoder().raw_decode(rest)
        found.append(value)
        rest = rest[end:].strip()
    return found


@dataclass(frozen=True)
class Terminal:
    """Runs commands in one home with one environment: each in a process of its own, unless there is a shell."""

    home: Path
    env: Mapping[str, str] = field(default_factory=dict)
    program: str = COMMAND
    shell: "Shell | None" = field(default=None, repr=False)

    def set(self, **env: str) -> "Terminal":
        """The same terminal with more in its environment."""
        return replace(self, env={**self.env, **env})

    @property
    def demo(self) -> "Terminal":
        """The same terminal for `python -m demo`."""
        return replace(self, program="demo.__main__")

    def start(self, *words: str | bytes) -> "subprocess.Popen[str]":
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", self.program, *words],
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def execute(self, *words: str | bytes) -> Answer:
        """Run a command to its end, interpreter and all."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=ANSWER_SECONDS)
        return Answer(tuple(map(os.fsdecode, words)), process.returncode, out, err)

    def seen(self, *words: str) -> tuple[int, list[str]]:
        """Run a command as somebody in front of a screen does; its exit code, and what the screen showed, each time."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-m", self.program, *words],
            env={**self.variables, "TERM": "xterm"},
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        written = bytearray()
        with (
            os.fdopen(leader, "rb", buffering=0) as screen,
            contextlib.suppress(OSError),
        ):  # EIO: nobody writes any more
            while part := screen.read(65_536):
                written += part
        return process.wait(ANSWER_SECONDS), SCREEN.split(COLOUR.sub("", written.decode()).replace("\r", ""))

    def run(self, *words: str | bytes) -> Answer:
        """Run a command to its end."""
        return (self.shell or Shell()).run(words, self.variables, self.program)

    @cached_property
    def variables(self) -> dict[str, str]:
        return {**environment(Settings(home=self.home)), **self.env}

    def ok(self, *words: str) -> Any:
        """Run a command with --json; it must succeed; what it printed."""
        answer = self.run(*words, "--json")
        assert answer.code == 0, answer.said
        return answer.json

    def by_right(self, ref: str, trigger: str) -> None:
        """Fire what Interlock's own parts fire, and wait until it is applied."""
        with Client(Runtime(Settings(home=self.home)), project=self.env.get("INTERLOCK_PROJECT")) as client:
            (receipt,) = client.wait([fire(client, ref, trigger, by="engine").request_id])
        assert receipt.status == "applied", receipt

    def each(self, commands: Sequence[Words]) -> list[Answer]:
        """Run commands in one process, one after another; their answers."""
        here = replace(self, shell=self.shell or Shell())
        return [here.run(*words) for words in commands]


class Shell:
    """A process that runs commands one after another, and keeps what each would make anew: itself, its connections, …

    That takes most of the time of a command that has little to do. It is a fork of one that has imported all commands,
    and ends when it is dropped. For commands that leave nothing in their process that the next could find.
    """

    def __init__(self) -> None:
        self._busy = Lock()

    @cached_property
    def _fork(self) -> tuple["Connection[Any, Any]", BaseProcess]:
        talk, its = FORKS.Pipe()
        process = FORKS.Process(target=obey, args=(its,))
        process.start()
        its.close()
        weakref.finalize(self, _end, talk, process)
        return talk, process

    def run(self, words: Words, env: Mapping[str, str], program: str = COMMAND) -> Answer:
        """Run a command to its end with an environment; if it ended the process, the next has another."""
        with self._busy, tempfile.TemporaryDirectory() as directory:
            talk, process = self._fork
            out, err = (Path(directory) / name for name in ("out", "err"))
            talk.send((program, words, env, Path.cwd(), out, err))
            answered = wait([talk, process.sentinel], ANSWER_SECONDS)
            code = self._code()
            said = tuple(each.read_text() if each.exists() else "" for each in (out, err))
            assert answered, f"no answer to {words}: {''.join(said)}"
            return Answer(tuple(map(os.fsdecode, words)), code, *said)

    def _code(self) -> int:
        """The exit code that it told; else that of the process, which is no more."""
        talk, process = self._fork
        with contextlib.suppress(EOFError):
            if talk.poll():
                return int(talk.recv())
        self.end()
        return process.exitcode or 0

    def end(self) -> None:
        """End the process; a later command has another."""
        if fork := vars(self).pop("_fork", None):
            _end(*fork)


def _end(talk: "Connection[Any, Any]", process: BaseProcess) -> None:
    talk.close()
    process.join(END_SECONDS)
    process.kill()
    process.join()


def forked(words: Words, env: Mapping[str, str], program: str = COMMAND) -> Answer:
    """Run a command to its end with an environment, in a fork of its own."""
    return Shell().run(words, env, program)


def obey(caller: "Connection[Any, Any]") -> None:
    """In a fork: run the commands that come, each in its caller's directory; tell their exit codes."""
    runtime.make_engine = lasting_engine  # type: ignore[attr-defined]
    path = [*sys.path]
    with contextlib.suppress(EOFError):
        while True:
            program, words, env, here, out, err = caller.recv()
            os.chdir(here)
            sys.path[:] = path
            runtime.runtime.cache_clear()
            if os.environ != env:  # another's, or the last command has changed its own
                settings.cache_clear()
            caller.send(_become(program, words, env, out, err))


@cache
def lasting_engine(url: str, **options: Any) -> Engine:
    """An engine whose connections outlive the command, unless PostgreSQL has closed them meanwhile."""
    made = make_engine(url, **options)
    made.dispose = lambda close=True: None  # type: ignore[method-assign]
    event.listen(made, "checkout", _is_open)
    return made


def _is_open(connection: Any, *_: object) -> None:
    if select.select([connection], [], [], 0)[0]:  # what nobody asked for is its last word, or its end
        raise DisconnectionError


def _become(*command: Any) -> int:
    try:
        become(*command)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def become(program: str, words: Sequence[str | bytes], env: Mapping[str, str], out: Path, err: Path) -> None:
    """In a fork: what `python -m PROGRAM WORDS` does once everything is imported. `out` and `err` may be one file."""
    for stream, file in ((1, out), (2, err)):
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, stream)
        os.close(handle)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = ["interlock", *map(os.fsdecode, words)]
    import_module(program).main()
