"""Commands good and bad, as real processes: what they may get, how they end, what is kept of what they say."""

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from interlock.workers.execution.command import INHERITED, MARK, Command
from interlock.workers.execution.process import run
from interlock.workers.execution.result import Finished
from interlock.workflows.errors import BadInput
from tests.shims import shim, shims
from tests.waiting import eventually

pytestmark = pytest.mark.integration
MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No child of ours, running or waiting to be reaped, and no file descriptor."""
    before = psutil.Process().num_fds()
    yield
    assert shims() == []
    assert psutil.Process().num_fds() <= before  # fewer, where something of an earlier test was collected meanwhile


def done(cwd: Path, *argv: str, **asked: Any) -> Finished:
    return run(Command(argv=argv, cwd=cwd, **{"timeout_seconds": 20, "grace_seconds": 0.3, **asked}))


def shell(cwd: Path, line: str, **asked: Any) -> Finished:
    return done(cwd, line, shell=True, **asked)  # noqa: S604 - the lines are our own


def python(cwd: Path, program: str, **asked: Any) -> Finished:
    return done(cwd, sys.executable, "-I", "-S", "-c", program, **asked)


def test_a_command_runs_where_told_and_its_end_is_told(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    ended = done(tmp_path, "/bin/sh", "-c", "pwd; echo oops >&2; exit 3")
    assert (ended.exit_code, ended.signal, ended.started, ended.timed_out, ended.cancelled) == (
        3,
        None,
        True,
        False,
        False,
    )
    assert (ended.stdout, ended.stderr, ended.left_behind, ended.survivors) == (f"{tmp_path}\n", "oops\n", 0, 0)
    assert before <= ended.started_at <= ended.ended_at <= datetime.now(UTC)
    assert (ended.ended_at - ended.started_at).total_seconds() == pytest.approx(ended.duration_seconds, abs=1e-5)
    assert not ended.succeeded()
    assert ended.succeeded(expected=(3,))


def test_words_reach_the_program_as_they_are_and_no_shell_sees_them(tmp_path: Path) -> None:
    words = ["$HOME", "a b", "*", "", "é\udcff", "; exit 9"]
    shown = python(tmp_path, "import os, sys; print([os.fsencode(word) for word in sys.argv[1:]])")
    assert shown.stdout == "[]\n"
    ended = done(
        tmp_path, sys.executable, "-I", "-S", "-c", "import os, sys; print([*map(os.fsencode, sys.argv[1:])])", *words
    )
    assert ended.stdout == f"{[os.fsencode(word) for word in words]}\n"


def test_a_shell_only_where_one_is_asked_for(tmp_path: Path) -> None:
    assert shell(tmp_path, "echo one | tr o 0; exit 4").stdout == "0ne\n"
    assert done(tmp_path, "echo one | tr o 0; exit 4").exit_code == 127


def test_the_environment_is_what_was_given_and_the_short_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TMPDIR", "/nowhere")
    ended = done(tmp_path, "/usr/bin/env", "-0", env={"TMPDIR": str(tmp_path), "LINES": "two\nlines", "EMPTY": ""})
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    seen = dict(entry.split("=", 1) for entry in ended.stdout.split("\ufffd") if entry)
    assert seen.pop(MARK).partition("/")[::2] != ("", "")  # an id of its own, by which strays are found
    assert seen == {**inherited, "TMPDIR": str(tmp_path), "LINES": "two\nlines", "EMPTY": ""}


def test_a_program_is_looked_up_on_the_path_it_is_given(tmp_path: Path) -> None:
    program = tmp_path / "hello"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    assert done(tmp_path, "hello").exit_code == 127
    assert done(tmp_path, "hello", env={"PATH": str(tmp_path)}).stdout == "found\n"
    assert done(tmp_path, "./hello").stdout == "found\n"


GLIBCS_OWN = 0b11 << 31  # signals 32 and 33: glibc lets nobody reset them, whoever ignored them
MASK_AND_SESSION = """
import os, signal
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), os.getpid() == os.getpgrp() == os.getsid(0))
"""


def test_a_command_inherits_no_file_no_input_no_session_and_no_signals_ignored_or_blocked(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        ignored = signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # as Celery's pool processes ignore some
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGCHLD})
        try:
            ended = shell(tmp_path, "readlink /proc/$$/fd/0; ls /proc/$$/fd; grep SigIgn /proc/self/status")
            python_says = python(tmp_path, MASK_AND_SESSION)
        finally:
            signal.signal(signal.SIGQUIT, ignored)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    rest, _, mask = ended.stdout.rpartition("\t")
    assert rest == "/dev/null\n0\n1\n2\nSigIgn:"
    assert int(mask, 16) & ~GLIBCS_OWN == 0
    assert python_says.stdout == "set() True\n"


REFUSALS = {
    "no such program": (("no-such-program",), 127, "no-such-program: No such file or directory"),
    "no such path": (("./no/such",), 127, "./no/such: No such file or directory"),
    "a file on the way": (("./plain/x",), 127, "./plain/x: Not a directory"),
    "not executable": (("./plain",), 126, "./plain: Permission denied"),
    "a directory": (("./",), 126, "./: Permission denied"),
    "not a program": (("./garbage",), 126, "./garbage: Exec format error"),
    "no interpreter": (("./lost",), 127, "./lost: No such file or directory (the program that its first line names)"),
    "a NUL": (("tr\0ue",), 126, "ValueError: execve: embedded null"),
    "too many words": (("true", *["x" * 100_000] * 50), 126, "true: Argument list too long"),
}


@pytest.mark.parametrize(("argv", "code", "reason"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_command_that_cannot_run_says_why_as_a_value(
    tmp_path: Path, argv: tuple[str, ...], code: int, reason: str
) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    (tmp_path / "garbage").write_bytes(b"\x7fELFnot")
    (tmp_path / "lost").write_text("#!/no/such/interpreter\n")
    for program in ("garbage", "lost"):
        (tmp_path / program).chmod(0o755)
    ended = done(tmp_path, *argv)
    assert (ended.exit_code, ended.started, ended.signal) == (code, False, None)
    assert ended.stderr.startswith(reason)
    assert ended.reason == ended.stderr


def test_a_working_directory_that_is_missing_refuses(tmp_path: Path) -> None:
    ended = done(tmp_path / "gone", "true")
    assert (ended.exit_code, ended.started) == (126, False)
    assert ended.stderr == f"working directory {tmp_path / 'gone'}: No such file or directory"


def test_what_cannot_be_encoded_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="ud800"):
        done(tmp_path, "echo", "\ud800")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_death_by_signal_is_128_and_its_number(tmp_path: Path, number: signal.Signals) -> None:
    ended = shell(tmp_path, f"kill -{int(number)} $$")
    assert (ended.exit_code, ended.signal, ended.reason) == (128 + number, number, f"ended by {number.name}")
    assert not list(tmp_path.iterdir())  # no core


def test_writing_without_end_is_bounded_in_memory_and_time(tmp_path: Path) -> None:
    before = psutil.Process().memory_info().rss
    ended = shell(tmp_path, "yes & yes >&2", timeout_seconds=0.7, output_limit_bytes=1000)
    assert ended.timed_out
    assert ended.duration_seconds < 20
    assert len(ended.stdout) < 1100
    assert ended.stdout_truncated_bytes > 10 * MIB
    assert ended.stderr_truncated_bytes > 10 * MIB
    assert psutil.Process().memory_info().rss - before < 20 * MIB


def test_of_a_long_output_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    ended = shell(tmp_path, "seq 1 200000", output_limit_bytes=2000)
    assert ended.exit_code == 0
    assert ended.stdout.startswith("1\n2\n")
    assert ended.stdout.endswith("199999\n200000\n")
    assert f"\n[{ended.stdout_truncated_bytes} bytes left out]\n" in ended.stdout
    assert ended.stdout_truncated_bytes == 1_288_895 - 2000


def test_all_of_an_output_within_the_limit_is_kept_also_what_comes_last(tmp_path: Path) -> None:
    ended = python(tmp_path, "import os; os.write(1, b'x' * 60_000); os.write(2, b'last words')")
    assert (len(ended.stdout), ended.stdout_truncated_bytes, ended.stderr) == (60_000, 0, "last words")


WRITES_A_LOT_AND_ENDS = """
import fcntl, os, time
fcntl.fcntl(1, 1031, 1 << 20)  # F_SETPIPE_SZ
while not os.path.exists('go'): time.sleep(0.01)
os.write(1, b'x' * 900_000)
"""


def test_what_still_lies_in_the_pipe_at_the_end_is_kept(tmp_path: Path) -> None:
    def tick_until_it_is_over() -> None:
        watching = shim()
        (tmp_path / "go").touch()
        eventually(lambda: watching.status() == psutil.STATUS_ZOMBIE)

    command = Command((sys.executable, "-I", "-S", "-c", WRITES_A_LOT_AND_ENDS), tmp_path, timeout_seconds=20)
    ended = run(command, on_tick=tick_until_it_is_over, tick_seconds=0.2)
    assert (ended.exit_code, len(ended.stdout)) == (0, 900_000)


def test_one_huge_line_is_no_trouble(tmp_path: Path) -> None:
    ended = python(tmp_path, "print('x' * 50_000_000)", output_limit_bytes=4096)
    assert (ended.exit_code, ended.stdout_truncated_bytes) == (0, 50_000_001 - 4096)


def test_binary_output_becomes_text_that_postgresql_takes(tmp_path: Path) -> None:
    ended = python(tmp_path, r"import sys; sys.stdout.buffer.write(bytes(range(256)) + b'\xed\xa0\x80 \xe6\xbc\xa2')")
    assert ended.stdout.startswith("\ufffd\x01\x02")
    assert ended.stdout.endswith(" 漢")
    assert "\0" not in ended.stdout
    ended.stdout.encode("utf-8")


def test_a_command_that_closes_its_output_is_still_waited_for(tmp_path: Path) -> None:
    ended = shell(tmp_path, "exec >&- 2>&-; sleep 0.3; exit 5")
    assert ended.exit_code == 5
    assert ended.duration_seconds >= 0.3


def test_a_memory_hog_fails_at_its_limit_and_a_reservation_is_none(tmp_path: Path) -> None:
    hog = python(tmp_path, f"b = bytearray({600 * MIB})", memory_bytes=200 * MIB)
    assert (hog.exit_code, "MemoryError" in hog.stderr) == (1, True)
    reserve = (
        f"import mmap; mmap.mmap(-1, {600 * MIB}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0); print('ok')"
    )
    assert python(tmp_path, reserve, memory_bytes=200 * MIB).stdout == "ok\n"


def test_a_cpu_hog_is_ended_also_one_that_is_deaf(tmp_path: Path) -> None:
    deaf = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    ended = python(tmp_path, deaf, cpu_seconds=1)
    assert (ended.signal, ended.timed_out) == (signal.SIGKILL, False)
    assert ended.limit == "it used its 1 s of processor time"
    assert 0.5 < ended.cpu_seconds < 4, "the kernel counts whole ticks: on a busy machine more than were used"
    assert python(tmp_path, "while True: pass", cpu_seconds=0.5).signal == signal.SIGXCPU


@pytest.mark.parametrize("memory_bytes", [1, 100_000])
def test_a_limit_too_low_to_start_under_is_a_failure_like_another(tmp_path: Path, memory_bytes: int) -> None:
    ended = done(tmp_path, "sleep", "0", memory_bytes=memory_bytes)
    assert (ended.exit_code != 0, ended.timed_out) == (True, False)


@pytest.mark.parametrize("timeout_seconds", [None, 1e9])
def test_a_command_may_have_all_the_time_there_is(tmp_path: Path, timeout_seconds: float | None) -> None:
    assert done(tmp_path, "sleep", "0.1", timeout_seconds=timeout_seconds).exit_code == 0


LIMITS = """
import os, resource as r
print(r.getrlimit(r.RLIMIT_CORE), r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CPU), os.nice(0))
"""


def test_limits_are_put_on_and_never_above_our_own(tmp_path: Path) -> None:
    ended = python(tmp_path, LIMITS, open_files=64, cpu_seconds=7, nice=3)
    assert ended.stdout == f"(0, 0) (64, 64) (7, 8) {min(19, os.nice(0) + 3)}\n"
    own = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert f"({own}, {own})" in python(tmp_path, LIMITS, open_files=1 << 40).stdout
    assert done(tmp_path, "true", open_files=4).exit_code == 0


def test_memory_and_cpu_used_are_told(tmp_path: Path) -> None:
    ended = python(tmp_path, f"b = b'x' * {64 * MIB}\nfor _ in range(3_000_000): pass")
    assert 64 * MIB < (ended.max_rss_bytes or 0) < 200 * MIB
    assert 0.02 < ended.cpu_seconds < 10


def test_ticks_come_in_the_callers_thread_also_while_output_floods(tmp_path: Path) -> None:
    ticks: list[tuple[int, float]] = []
    command = Command(argv=("yes",), cwd=tmp_path, timeout_seconds=2, grace_seconds=0.3)
    run(command, on_tick=lambda: ticks.append((threading.get_ident(), time.monotonic())), tick_seconds=0.1)
    assert {thread for thread, _ in ticks} == {threading.get_ident()}
    assert 4 <= len(ticks) <= 21
    assert all(later[1] - earlier[1] >= 0.09 for earlier, later in pairwise(ticks))


def test_several_at_once_do_not_mix(tmp_path: Path) -> None:
    ended: dict[int, Finished] = {}

    def one(number: int) -> None:
        ended[number] = shell(tmp_path, f"echo {number}; sleep 0.2; exit {number}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: (each.exit_code, each.stdout) for number, each in ended.items()} == {
        number: (number, f"{number}\n") for number in range(6)
    }
