"""`interlock` as a fork of the fork server: the same command in every respect, or else no fork."""

import ctypes
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from interlock.cli.fork_server import launcher, listener, server
from interlock.cli.fork_server.confinement import confinement, is_alike
from interlock.db.schema import VARIABLE
from interlock.supervisor import orphans
from interlock.supervisor.environment import environment
from interlock.supervisor.home import Home, home_of
from interlock.supervisor.processes import specs
from interlock.supervisor.processes.process import Child
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.settings import Settings
from tests.forking import listener_of
from tests.waiting import eventually


def _refusal() -> str:
    """Why no process here can have a fork; empty: it can."""
    one, other = socket.socketpair()
    with one, other:
        try:
            return "" if is_alike(one) else "everything here has no_new_privs"
        except OSError as refused:
            return f"SO_PEERPIDFD (Linux 6.5): {refused}"


pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(_refusal()), reason=_refusal())]
INTERLOCK = Path(sys.executable).with_name("interlock")
ITSELF = (sys.executable, "-P", "-m", "interlock.cli.main")  # without a fork
HERE = Path(__file__).parent
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38
AT_ONCE = 20
SMALL_BYTES = 30e6
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Served:
    """A home with a fork server, without other parts."""

    home: Home
    process: "subprocess.Popen[bytes]"
    env: dict[str, str]
    folder: Path

    def run(self, *command: object, **options: Any) -> "subprocess.CompletedProcess[str]":
        chosen = {"cwd": self.folder, "stdin": subprocess.DEVNULL, "env": self.env, **options}
        return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=60, **chosen)

    def probe(self, *command: object, **options: Any) -> dict[str, Any]:
        """What the process that ran a command was."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        env = {**self.env, **options.pop("more", {}), "INTERLOCK_DEFINITIONS": "fork_probe", "PROBE": str(report)}
        done = self.run(*command, "definitions", "list", "--json", env=env, **options)
        assert done.returncode == 0, done.stderr
        assert {each["type"] for each in json.loads(done.stdout)} > {"story", "run"}
        found: dict[str, Any] = json.loads(report.read_text())
        return found

    def fork(self, **options: Any) -> dict[str, Any]:
        """What the fork was that ran a command. On a busy machine the launcher may take the server for stuck once."""
        found: dict[str, Any] = eventually(
            lambda: (got := self.probe(INTERLOCK, **options)) and self.is_fork(got) and got
        )
        return found

    def is_fork(self, found: dict[str, Any]) -> bool:
        return bool(found["parent"] == self.process.pid)

    @contextmanager
    def waiting(self, before: tuple[str, ...] = (), **options: Any) -> Iterator["subprocess.Popen[str]"]:
        """A command that reads its standard input, which stays open, in a fork."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [*before, INTERLOCK, "run", "check", "-"]
        with subprocess.Popen(command, cwd=self.folder, env=self.env, text=True, **streams, **options) as process:
            eventually(lambda: self.forks() and self.forks()[0].name() == "interlock")
            try:
                yield process
            finally:
                process.kill()

    def knock(self) -> None:
        """Wait until it has imported what commands need."""
        with socket.socket(socket.AF_UNIX) as connection, suppress(ConnectionResetError):  # it became small meanwhile
            reach(connection, self.home.path / "run")
            connection.recv(1)

    def forks(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()


def reach(connection: socket.socket, run: Path) -> None:
    with launcher.address(run) as socket_path:
        connection.connect(socket_path)


@contextmanager
def serving(folder: Path, more: dict[str, str] | None = None, idle: str = "300", **options: Any) -> Iterator[Served]:
    home = home_of(Settings(home=folder / "home"))
    home.create()
    plain = {name: value for name, value in environment(Settings(home=home.path)).items() if "PYTHON" not in name}
    env = {**plain, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(HERE)}
    with (
        (folder / "log").open("wb") as log,
        listener_of(home, {**env, **(more or {})}, idle, stdout=log, **options) as process,
    ):
        made = Served(home, process, env, folder)
        made.knock()
        yield made


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
    "elsewhere": {
        "cwd": "/",
        "umask": 0,
        "pass_fds": "one",
        "more": {"TZ": "Asia/Tokyo", "TMPDIR": "/", "ODD": "\udce9\n="},
    },
    "in a deleted directory": {"cwd": "gone"},
    "bounded": {"preexec_fn": bounded},
    "without colour": {"more": {"NO_COLOR": "1", "COLUMNS": "60", "PYTHONUNBUFFERED": "1"}},
    "of the C locale": {"more": {"FORCE_COLOR": "1", "TERM": "xterm-256color", "LC_ALL": "C"}},
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


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_fork_answers_as_its_caller_would(served: Served, words: tuple[str, ...]) -> None:
    env = {**served.env, **WORDS[words]}
    ran = [served.run(*way, *map(os.fsencode, words), env=env) for way in ((INTERLOCK,), ITSELF)]
    forked, itself = [(each.returncode, each.stdout, each.stderr) for each in ran]
    assert forked == itself


def test_a_terminal_gets_colours_and_its_own_width(served: Served) -> None:
    screens = []
    for way in ((str(INTERLOCK),), ITSELF):
        leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (30, 77))
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
    assert max(map(len, COLOUR.sub("", screens[0]).split("\r\n"))) == 77


# What confines a process, each with what to do to be confined so.
def control(*values: int) -> Callable[[], None]:
    def confine() -> None:
        if LIBC.prctl(*values, *([0] * (5 - len(values)))):
            raise OSError(ctypes.get_errno(), "prctl")

    return confine


def filtered() -> None:
    """A seccomp filter that allows everything."""

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_void_p))

    allow = ctypes.create_string_buffer(b"\x06\0\0\0\0\0\xff\x7f")  # BPF_RET, SECCOMP_RET_ALLOW
    control(PR_SET_NO_NEW_PRIVS, 1)()
    if LIBC.prctl(PR_SET_SECCOMP, 2, ctypes.byref(Filter(1, ctypes.addressof(allow))), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def unshared(kind: int) -> Callable[[], None]:
    def confine() -> None:
        if LIBC.unshare(kind):
            raise OSError(ctypes.get_errno(), "unshare")

    return confine


CONFINED: dict[str, Callable[[], object]] = {
    "no new privileges": control(PR_SET_NO_NEW_PRIVS, 1),
    "seccomp": filtered,
    "a capability dropped": control(PR_CAPBSET_DROP, 21),
    "other groups": lambda: os.setgroups([*os.getgroups(), 54321]),
    "another group": lambda: os.setegid(54321),
    "mnt": unshared(0x00020000),
    "cgroup": unshared(0x02000000),
    "uts": unshared(0x04000000),
    "ipc": unshared(0x08000000),
    "net": unshared(0x40000000),
    "pid_for_children": unshared(0x20000000),
    "time_for_children": unshared(0x00000080),
    "user": unshared(0x10000000),
}


def _possible(confine: Callable[[], object]) -> bool:
    if not (pid := os.fork()):
        try:
            confine()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def test_every_kind_of_namespace_is_among_the_confinements() -> None:
    assert {name for name in os.listdir("/proc/self/ns")} - {"pid", "time"} <= CONFINED.keys()


ASKS = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.exit(s.recv(1) != b'?')"


def is_declined(served: Served, confine: Callable[[], object] | None = None) -> bool:
    """Whether the server turns a caller away that does not ask itself whether both are alike, as the launcher does."""
    asks = (sys.executable, "-I", "-S", "-c", ASKS, launcher.SOCKET)
    done = served.run(*asks, cwd=served.home.path / "run", preexec_fn=confine)
    assert done.stderr == ""
    return bool(done.returncode)


@pytest.mark.parametrize("kind", CONFINED)
def test_a_caller_confined_in_another_way_gets_no_fork(served: Served, kind: str) -> None:
    """A fork would be allowed more than its caller is: an agent's sandbox would end at our socket."""
    if not _possible(CONFINED[kind]):
        pytest.skip("only root can confine a process so")
    assert is_declined(served, CONFINED[kind])
    assert not is_declined(served)


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
    assert not served.is_fork(served.probe(INTERLOCK, **ELSEWHERE[case]))


def test_another_installed_code_runs_in_its_caller_also_after_an_upgrade_in_place(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(Path(launcher.__file__).parents[2], copy / "interlock")
    path = {"PYTHONPATH": f"{copy}:{HERE}"}
    with serving(tmp_path, path) as served:
        same = (sys.executable, "-P", "-c", "from interlock.cli.fork_server.launcher import main; main()")
        eventually(lambda: served.is_fork(served.probe(*same, more=path)))
        assert not served.is_fork(served.probe(INTERLOCK))
        (copy / "interlock" / "__init__.py").touch()
        assert not served.is_fork(served.probe(*same, more=path))


def test_arguments_that_name_an_open_file_run_where_it_is_open(served: Served) -> None:
    plan = "name: small\nworkstreams: [{id: one, tasks: [{id: only, command: ['true']}]}]\n"
    (served.folder / "plan.yaml").write_text(plan)
    done = served.run("bash", "-c", f"{INTERLOCK} run check <(cat plan.yaml)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_both_as_it_would_end_the_command(served: Served, number: signal.Signals) -> None:
    ends = []
    with served.waiting() as process:
        process.send_signal(number)
        ends.append((process.wait(20), process.stderr.read() if process.stderr else ""))
    eventually(lambda: not served.forks())
    command = [*ITSELF, "run", "check", "-"]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=served.folder, env=served.env, text=True, **streams) as process:
        eventually(lambda: Path(f"/proc/{process.pid}/syscall").read_text().startswith("0 0x0 "))
        process.send_signal(number)
        ends.append((process.wait(20), process.stderr.read() if process.stderr else ""))
    assert ends[0] == ends[1]


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


def test_a_stuck_fork_server_delays_a_command_but_does_not_hang_it(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.process.send_signal(signal.SIGSTOP)
        assert not served.is_fork(served.probe(INTERLOCK))
        (tmp_path / "report.json").unlink()
        served.process.send_signal(signal.SIGCONT)
        eventually(lambda: b"declined" in (tmp_path / "log").read_bytes())
        assert not (tmp_path / "report.json").exists(), "it ran twice"
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
    with serving(tmp_path, idle="1") as served:
        process = psutil.Process(served.process.pid)
        eventually(lambda: process.memory_info().rss < SMALL_BYTES)
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


def test_only_its_user_reaches_the_socket(served: Served) -> None:
    assert (served.home.path / "run").stat().st_mode & 0o777 == 0o700
    assert (served.home.path / "run" / launcher.SOCKET).stat().st_mode & 0o777 == 0o700


def test_a_confinement_that_proc_does_not_show_is_expected_wherever_it_is_possible(tmp_path: Path) -> None:
    """Landlock needs `no_new_privs`; a caller under both looks like a server that has the latter only."""
    confined = control(PR_SET_NO_NEW_PRIVS, 1)
    with serving(tmp_path, preexec_fn=confined) as served:
        assert not served.is_fork(served.probe(INTERLOCK, preexec_fn=confined))


def test_a_second_seccomp_filter_shows() -> None:
    def counts() -> None:
        before = confinement(os.getpid())
        filtered()
        between = confinement(os.getpid())
        filtered()
        assert before != between != confinement(os.getpid())

    assert _possible(counts)


LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


@pytest.mark.skipif(not os.access(LAST_PID, os.W_OK), reason="only root can choose a pid")
def test_a_pid_that_is_used_again_is_not_the_callers(tmp_path: Path) -> None:
    """A confined caller could end, so that its pid is that of a process which is not confined."""
    ours, theirs = socket.socketpair()
    with listener.listen(_home(tmp_path)) as listening, socket.socket(socket.AF_UNIX) as connection, ours, theirs:
        if not (caller := os.fork()):
            try:
                os.chdir(tmp_path / "run")
                connection.connect(launcher.SOCKET)
                socket.send_fds(theirs, [b"."], [connection.fileno()])
            finally:
                os._exit(0)
        ours.settimeout(20)
        _, held, _, _ = socket.recv_fds(ours, 1, 1)
        os.waitpid(caller, 0)
        accepted, _ = listening.accept()
        with accepted:
            for _ in range(100):
                LAST_PID.write_text(str(caller - 1))
                other = subprocess.Popen(["sleep", "60"])
                try:
                    if other.pid == caller:
                        assert confinement(caller) == confinement(os.getpid())
                        with pytest.raises(OSError, match="No such process"):
                            is_alike(accepted)
                        break
                finally:
                    other.kill()
                    other.wait()
            else:
                pytest.skip("that pid went to another process")
        os.close(held[0])


def _home(folder: Path) -> Path:
    (folder / "run").mkdir()
    return folder / "run"


STRANGERS: dict[str, Callable[[], object]] = {
    "another user": lambda: os.setresuid(65534, 65534, 65534),
    "one in a sandbox": control(PR_SET_NO_NEW_PRIVS, 1),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_nobody_shows_a_strange_server_its_environment(tmp_path: Path, stranger: str) -> None:
    if not _possible(STRANGERS[stranger]):
        pytest.skip("this user cannot become such a process")
    listens, said = os.pipe()
    with listener.listen(_home(tmp_path)) as listening:
        if not (pid := os.fork()):
            STRANGERS[stranger]()
            listening.listen()  # as itself
            os.write(said, b".")
            os._exit(len(listening.accept()[0].recv(1)))
        os.read(listens, 1)
        env = environment(Settings(home=tmp_path))
        done = subprocess.run([INTERLOCK, "--version"], env=env, capture_output=True, check=True, timeout=60)
        assert done.stdout.startswith(b"interlock")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for each in (listens, said):
        os.close(each)


def test_the_fork_server_holds_nothing_of_the_supervisors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its forks run what callers want, so callers could read it. (A hidden one could not read its own namespaces.)"""
    monkeypatch.setenv("SECRET_OF_THE_SUPERVISOR", "horse")
    home = home_of(Settings(home=tmp_path))
    home.create()
    parts = specs.celery_parts(home, Settings(home=tmp_path), Servers(postgres_port=1, redis_port=1))
    child = Child(next(part for part in parts if part.name == "commands"), tmp_path / "log", lambda: None)
    child.start()
    try:
        eventually(lambda: child.tend() or child.state == "ready")
        process = psutil.Process(child.report().pid)
        assert process.environ().keys() <= {"INTERLOCK_READY_FILE", VARIABLE, "LC_ALL", "PYTHONPATH", "PYTHONSAFEPATH"}
        assert specs.FORK_SERVER in process.cmdline()  # executed: a fork has the pages of its parent
        assert (process.name(), orphans.mark(process)) == ("il-commands", str(home.path))
    finally:
        child.finish_stop(hurried=True)


def test_confinement_of_ones_own_process_is_readable() -> None:
    assert confinement(os.getpid()) == confinement(os.getpid())
