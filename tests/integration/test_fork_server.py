"""`interlock` as a fork of the fork server: the same command in every respect, or else no fork."""

import json
import os
import pty
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from interlock.cli.fork_server import launcher, listener, server
from tests.forking import INTERLOCK, PROBE, Served, reach, refusal, serving
from tests.waiting import eventually

REFUSAL = refusal()
pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)]
ITSELF = (sys.executable, "-P", "-m", "interlock.cli.main")  # without a fork
AT_ONCE = 12
SMALL_BYTES = 30e6
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as made:
        yield made


def bounded() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


# One process, described by what it is.
LOOKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "elsewhere, bounded and without colour": {
        "cwd": "/",
        "umask": 0,
        "pass_fds": "one",
        "preexec_fn": bounded,
        "more": {"TZ": "Asia/Tokyo", "TMPDIR": "/", "ODD": "\udce9\n=", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"},
    },
    "in a deleted directory, of the C locale": {
        "cwd": "gone",
        "more": {"FORCE_COLOR": "1", "COLUMNS": "60", "TERM": "xterm-256color", "LC_ALL": "C", "PYTHON": "x"},
    },
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_fork_is_what_its_caller_would_have_been(served: Served, look: str, tmp_path: Path) -> None:
    options = dict(LOOKS[look])
    if options.get("cwd") == "gone":
        options["cwd"] = tmp_path
        before = options.pop("preexec_fn", lambda: None)
        options["preexec_fn"] = lambda: (before(), shutil.rmtree(tmp_path))
    with (tmp_path.parent / "handed").open("w") as handed:
        if "pass_fds" in options:
            options["pass_fds"] = [handed.fileno()]
        forked = served.fork(**options)
        tmp_path.mkdir(exist_ok=True)
        itself = served.probe(*ITSELF, **options)
    assert not served.is_fork(itself)
    # A file that the caller's own caller left open stays the caller's; nothing else may differ.
    for found in (forked, itself):
        del found["parent"], found["pid"], found["handed down"]
    assert forked == itself


COLOUR_OF_70 = {"FORCE_COLOR": "1", "COLUMNS": "70"}
WORDS: dict[tuple[str, ...], dict[str, str]] = {
    (): {},
    ("--help",): COLOUR_OF_70,
    ("definitions", "--help"): COLOUR_OF_70,
    ("definitions", "list"): COLOUR_OF_70,
    ("definitions", "show", "story", "--json"): {},
    ("definitions", "show", "nothing"): {},
    ("no-such-command",): COLOUR_OF_70,
    ("fire", "S-1", "block", "--by", "a\x1b[31mb", "--json"): {},
    ("show", "\udcff"): {},
    ("run", "check", "/dev/stdin"): {},
    ("status", "--json"): {},
}
# Runs commands without a fork, one after another, because importing takes each process a second. Prints their answers.
IN_TURN = """
import json, os, sys
from pathlib import Path
from interlock.cli.main import main
answers, told = [], os.dup(1)
for words in json.loads(sys.argv[1]):
    files = [os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for name in ("turn.out", "turn.err")]
    for stream, file in enumerate(files, 1):
        os.dup2(file, stream)
        os.close(file)
    sys.argv = ["interlock", *words]
    try:
        main()
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    answers.append([code, *(Path(name).read_text() for name in ("turn.out", "turn.err"))])
os.write(told, json.dumps(answers).encode())
"""


@pytest.fixture(scope="module")
def itself(served: Served) -> dict[tuple[str, ...], list[Any]]:
    """What each of these commands answers without a fork."""
    found = {}
    for more in ({}, COLOUR_OF_70):
        alike = [words for words, env in WORDS.items() if env == more]
        done = served.run(sys.executable, "-P", "-c", IN_TURN, json.dumps(alike), env={**served.env, **more})
        found |= dict(zip(alike, json.loads(done.stdout), strict=True))
    return found


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_fork_answers_as_its_caller_would(
    served: Served, itself: dict[tuple[str, ...], list[Any]], words: tuple[str, ...]
) -> None:
    done = served.run(INTERLOCK, *words, env={**served.env, **WORDS[words]})
    assert [done.returncode, done.stdout, done.stderr] == itself[words]


def test_a_terminal_gets_colours_and_its_own_width(served: Served) -> None:
    screens = []
    for way in ((str(INTERLOCK),), ITSELF):
        leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (30, 120))
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), follower)
        command = [*way, "definitions", "list"]
        env = {name: value for name, value in served.env.items() if name not in {"COLUMNS", "LINES"}}
        env |= {"TERM": "xterm-256color"}
        with subprocess.Popen(command, cwd=served.folder, env=env, **streams) as process:  # type: ignore[call-overload]
            os.close(follower)
            written = b""
            with suppress(OSError):  # EIO: nobody writes any more
                while part := os.read(leader, 65_536):
                    written += part
        os.close(leader)
        assert process.returncode == 0
        screens.append(written.decode())
    assert screens[0] == screens[1]
    assert "\x1b[1m" in screens[0]
    assert max(map(len, COLOUR.sub("", screens[0]).split("\r\n"))) == 120


ELSEWHERE: dict[str, dict[str, Any]] = {
    "another schema": {"more": {"INTERLOCK_SCHEMA": "other"}},
    "an option of Python's": {"more": {"PYTHONDEVMODE": "1"}},
    "another encoding": {"more": {"PYTHONIOENCODING": "latin-1"}},
    "closed input": {"preexec_fn": lambda: os.close(0), "stdin": None},
    "another home": {"more": {"INTERLOCK_HOME": "/nowhere"}},
    "in a lower-case variable": {"more": {"INTERLOCK_HOME": "", "interlock_home": "/nowhere"}},
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_what_a_fork_cannot_be_runs_in_its_caller(served: Served, case: str) -> None:
    eventually(lambda: not served.runs_itself(INTERLOCK))
    assert served.runs_itself(INTERLOCK, **ELSEWHERE[case])


def test_another_installed_code_runs_in_its_caller_also_after_an_upgrade_in_place(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(Path(launcher.__file__).parents[2], copy / "interlock")
    path = {"PYTHONPATH": f"{copy}:{PROBE}"}
    with serving(tmp_path, path) as served:
        same = ("-P", "-c", "from interlock.cli.fork_server.launcher import main; main()")
        eventually(lambda: not served.runs_itself(*same, more=path))
        assert served.runs_itself(INTERLOCK)
        (copy / "interlock" / "__init__.py").touch()
        assert served.runs_itself(*same, more=path)


def test_arguments_that_name_an_open_file_run_where_it_is_open(served: Served) -> None:
    plan = "name: small\nworkstreams: [{id: one, tasks: [{id: only, command: ['true']}]}]\n"
    (served.folder / "plan.yaml").write_text(plan)
    done = served.run("bash", "-c", f"{INTERLOCK} run check <(cat plan.yaml)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_both_as_it_would_end_the_command(served: Served, number: signal.Signals) -> None:
    with served.waiting() as process:
        process.send_signal(number)
        end = process.wait(20), process.stderr.read() if process.stderr else ""
    assert end == (130 if number == signal.SIGINT else -number, "")
    eventually(lambda: not served.forks())


def test_a_command_whose_caller_was_killed_ends(served: Served) -> None:
    with served.waiting() as process:
        process.kill()
        eventually(lambda: not served.forks())


def test_a_killed_command_is_reported(served: Served) -> None:
    with served.waiting() as process:
        served.forks()[0].kill()
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out) == (1, "")
        assert err == f"failed: {launcher.LOST}\n"


def test_ctrl_z_stops_both_and_they_go_on_together(served: Served) -> None:
    with served.waiting(process_group=0) as process:
        command, caller = served.forks()[0], psutil.Process(process.pid)
        process.send_signal(signal.SIGTSTP)
        for each in (command, caller):
            eventually(lambda each=each: each.status() == psutil.STATUS_STOPPED)
        process.send_signal(signal.SIGCONT)
        for each in (command, caller):
            eventually(lambda each=each: each.status() != psutil.STATUS_STOPPED)
        out, _ = process.communicate("name: x", timeout=20)
        assert process.returncode == 2, out


def test_a_stopped_command_whose_terminal_is_closed_ends(served: Served) -> None:
    with served.waiting(process_group=0) as process:
        process.send_signal(signal.SIGTSTP)
        eventually(lambda: served.forks()[0].status() == psutil.STATUS_STOPPED)
        for number in (signal.SIGHUP, signal.SIGCONT):  # what the kernel sends then
            process.send_signal(number)
        eventually(lambda: not served.forks())
        assert process.wait(20) == -signal.SIGHUP


def test_ctrl_z_stops_nothing_that_no_shell_could_continue(served: Served) -> None:
    """As for `ssh -t host interlock`: the kernel leaves an orphaned process group running."""
    program = "import os, sys; os.setsid(); os.execv(sys.argv[1], sys.argv[1:])"
    with served.waiting(before=(sys.executable, "-c", program)) as process:
        command, caller = served.forks()[0], psutil.Process(process.pid)
        process.send_signal(signal.SIGTSTP)
        out, _ = process.communicate("name: x", timeout=20)
        assert process.returncode == 2, (out, command, caller)


def test_a_stuck_fork_server_delays_a_command_but_does_not_hang_it(served: Served) -> None:
    log, report = served.folder / "log", served.folder / "report.json"
    before = log.stat().st_size
    served.process.send_signal(signal.SIGSTOP)
    try:
        assert not served.is_fork(served.probe(INTERLOCK))
        report.unlink()
    finally:
        served.process.send_signal(signal.SIGCONT)
    eventually(lambda: b"declined" in log.read_bytes()[before:])
    assert not report.exists(), "it ran twice"
    served.fork()


def test_a_fork_server_that_cannot_fork_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Over(Exception):
        pass

    faults = iter([BlockingIOError, Over])

    def full() -> int:
        raise next(faults)

    monkeypatch.setattr(os, "fork", full)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    (tmp_path / "run").mkdir()
    with listener.listen(tmp_path / "run") as listening, socket.socket(socket.AF_UNIX) as one:
        reach(one, tmp_path / "run")
        with socket.socket(socket.AF_UNIX) as two:
            reach(two, tmp_path / "run")
            with pytest.raises(Over):
                server.serve(listening, 20)


def test_after_a_while_without_commands_it_is_small_again(tmp_path: Path) -> None:
    with serving(tmp_path, idle="5") as served:  # longer than a command takes on a busy machine
        process = psutil.Process(served.process.pid)
        eventually(lambda: process.memory_info().rss < SMALL_BYTES, every=0.01)
        served.knock()  # at once: whoever asks while it begins anew is not refused
        served.fork()
        eventually(lambda: process.memory_info().rss < SMALL_BYTES)


def test_a_command_outlives_the_fork_server(tmp_path: Path) -> None:
    with serving(tmp_path) as served, served.waiting() as process:
        served.process.kill()
        served.process.wait()
        process.communicate("name: x", timeout=20)
        assert process.returncode == 2
        done = served.run(INTERLOCK, "definitions", "show", "story", "--json")
        assert (done.returncode, json.loads(done.stdout)["type"]) == (0, "story")


def test_strange_requests_end_only_their_own_fork(served: Served) -> None:
    requests = [
        b"",
        b"\0",
        b"\0\0\0\x02{}",
        b"\xff\xff\xff\xff{",
        b"\0\0\0\x04null",
        json.dumps({"code": launcher.code(), "words": 1}).encode(),
    ]
    for request in requests:
        for descriptors in ([], [0], [0, 1, 2, 0, 0]):
            with socket.socket(socket.AF_UNIX) as connection:
                reach(connection, served.home.path / "run")
                connection.settimeout(20)
                assert connection.recv(1) == launcher.READY
                socket.send_fds(connection, [request or b"\0"], descriptors)
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(1) == b""
    eventually(lambda: not served.forks())
    served.fork()


def test_a_request_that_trickles_in_is_bounded(served: Served) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        reach(connection, served.home.path / "run")
        assert connection.recv(1) == launcher.READY
        socket.send_fds(connection, [b"\0\x0f\0\0"], [0, 1, 2, 0])

        def is_over() -> bool:
            try:
                return not connection.send(b" ")
            except BrokenPipeError:
                return True

        eventually(is_over)


def test_many_at_once_each_get_their_own_answer(served: Served) -> None:
    started = [
        subprocess.Popen(
            [INTERLOCK, "definitions", "show", f"nothing-{number}"],
            cwd=served.folder,
            env=served.env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(AT_ONCE)
    ]
    for number, process in enumerate(started):
        _, err = process.communicate(timeout=60)
        assert process.returncode == 2
        assert f"'nothing-{number}'" in err
