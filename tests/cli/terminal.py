"""The real `interlock`, run as somebody at a terminal (or a program) runs it."""

import contextlib
import fcntl
import json
import multiprocessing
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

from interlock.cli.index import MODULES
from interlock.supervisor.environment import environment
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.rights import fire

COMMAND = "interlock.cli.main"
ANSWER_SECONDS = 90.0
LOOK_SECONDS = 0.3  # between two looks, each a command, at what takes its time: a look costs as much as 2 s of waiting
AT_ONCE = 4
SHARES = 2  # of many commands that share forks: two keep two cores busy
LINES, COLUMNS = 30, 120  # of a screen
COLOUR = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]")
SCREEN = re.compile(r"(?:\x1b\[[0-9]*[A-Z])+")  # the cursor goes back to where it draws anew
# A process of its own for each command, forked from one that has imported them all already: importing takes a second
# each time, and there are hundreds. `execute` is the whole thing, for the tests that start from nothing.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *(f"interlock.cli.{name}" for name in MODULES.values()),
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
    """Runs commands in one home with one environment."""

    home: Path
    env: Mapping[str, str] = field(default_factory=dict)
    program: str = COMMAND

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
        """Run a command to its end, in a fork."""
        return forked(words, self.variables, self.program)

    @property
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

    def all(self, commands: Sequence[Words]) -> list[Answer]:
        """Run commands, a few at once; their answers in the order given."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda words: self.run(*words), commands))

    def each(self, commands: Sequence[Words]) -> list[Answer]:
        """Run many commands in a few forks, in each one after another; their answers in the order given.

        A fork, its connection and its settings take most of the time of a command that has little to do. For commands
        that leave nothing in their process that the next could find.
        """
        given = self.variables
        with ThreadPoolExecutor(SHARES) as pool:
            shares = pool.map(lambda first: in_turn(commands[first::SHARES], given, self.program), range(SHARES))
            return [each for row in zip_longest(*shares) for each in row if each]


def forked(words: Words, env: Mapping[str, str], program: str = COMMAND) -> Answer:
    """Run a command to its end with an environment, in a fork of a process that has imported all of them."""
    (answer,) = in_turn([words], env, program)
    return answer


def in_turn(commands: Sequence[Words], env: Mapping[str, str], program: str = COMMAND) -> list[Answer]:
    """Run commands to their ends, one after another in one fork; the next only after one that ended by itself."""
    with tempfile.TemporaryDirectory() as directory:
        places = [Path(directory) / str(number) for number in range(len(commands))]
        process = FORKS.Process(target=become_in_turn, args=(program, commands, env, Path.cwd(), places))
        process.start()
        process.join(ANSWER_SECONDS)
        code = process.exitcode
        if code is None:
            process.kill()
        process.join()
        reached = [place for place in places if place.exists()]
        assert len(reached) in (len(places), 0), f"{commands[len(reached) - 1]}: {_read(reached[-1] / 'err')}"
        return [_answer(words, place, code) for words, place in zip(commands, places, strict=True)]


def _answer(words: Words, place: Path, code: int | None) -> Answer:
    """What a command left; `code` is its process's, for one that did not end by itself."""
    out, err, told = (_read(place / name) for name in ("out", "err", "code"))
    assert told or code is not None, f"no answer to {words}: {out}{err}"
    # Its own word first: the fork server now and then loses a child's status and answers 255 for it.
    return Answer(tuple(map(os.fsdecode, words)), int(told or code or 0), out, err)


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def become_in_turn(
    program: str, commands: Sequence[Words], env: Mapping[str, str], here: Path, places: Sequence[Path]
) -> None:
    """In a fork: `become` for each command, in the caller's directory; what it leaves has a place of its own."""
    os.chdir(here)
    for words, place in zip(commands, places, strict=True):
        place.mkdir()
        with contextlib.suppress(SystemExit):
            become(program, words, env, place / "out", place / "err")
        sys.stdout.flush()


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
    try:
        import_module(program).main()
    except SystemExit as end:
        out.with_name("code").write_text(str(end.code or 0))
        raise
