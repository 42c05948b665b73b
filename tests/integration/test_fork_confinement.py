"""A fork is allowed no more than its caller, and no caller shows itself to a stranger."""

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select

import psutil
import pytest

from interlock.cli.fork_server import launcher, listener
from interlock.cli.fork_server.confinement import confinement, is_alike
from interlock.db.schema import VARIABLE
from interlock.supervisor import orphans
from interlock.supervisor.home import home_of
from interlock.supervisor.processes import specs
from interlock.supervisor.processes.process import Child
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.settings import Settings
from tests.forking import INTERLOCK, Served, refusal, serving
from tests.waiting import eventually

REFUSAL = refusal()
pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)]
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as made:
        yield made


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
        eventually(lambda: len(os.listdir("/proc/self/task")) == 1)  # a fork has threads of OpenTelemetry's that end
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


def test_only_its_user_reaches_the_socket(served: Served) -> None:
    assert (served.home.path / "run").stat().st_mode & 0o777 == 0o700
    assert (served.home.path / "run" / launcher.SOCKET).stat().st_mode & 0o777 == 0o700


def test_a_confinement_that_proc_does_not_show_is_expected_wherever_it_is_possible(tmp_path: Path) -> None:
    """Landlock needs `no_new_privs`; a caller under both looks like a server that has the latter only."""
    confined = control(PR_SET_NO_NEW_PRIVS, 1)
    with serving(tmp_path, preexec_fn=confined) as served:
        assert served.runs_itself(INTERLOCK, preexec_fn=confined)


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
def test_nobody_shows_a_strange_server_its_environment(served: Served, tmp_path: Path, stranger: str) -> None:
    if not _possible(STRANGERS[stranger]):
        pytest.skip("this user cannot become such a process")
    listens, said = os.pipe()
    with listener.listen(_home(tmp_path)) as listening:
        if not (pid := os.fork()):
            STRANGERS[stranger]()
            listening.listen()  # as itself
            os.write(said, b".")
            os._exit(len(listening.accept()[0].recv(1)) if select([listening], [], [], 60)[0] else 2)
        os.read(listens, 1)
        env = {**served.env, "INTERLOCK_HOME": str(tmp_path)}
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
