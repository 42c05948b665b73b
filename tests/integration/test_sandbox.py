"""What a command gets in its sandbox, what it does not, and how it ends there. Skipped where none can be had."""

import os
import platform
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from interlock.workers.effects.plan_files import require_sandbox
from interlock.workers.execution.command import Command
from interlock.workers.execution.process import run
from interlock.workers.execution.result import ELSEWHERE, Finished
from interlock.workers.isolation.boundary import boundary, isolated
from interlock.workers.sandbox.sandbox import View
from interlock.workers.settings import Settings
from interlock.workflows.errors import BadInput
from interlock.workflows.plan.read import read_plan
from tests.homes import open_directory
from tests.shims import shims

pytestmark = pytest.mark.integration
MIB = 1 << 20
PYTHON = f"{sys.executable} -I -S -c"


class Site:
    """A home, a worktree in it, and a plan's folder, as an installation has them."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.settings = Settings(home=top / "home")
        self.account = boundary(self.settings).account
        self.place = self.made(top / "home" / "worktrees" / "run" / "own")
        self.other = self.made(top / "home" / "worktrees" / "run" / "other")
        (top / "home" / "servers.json").write_text("password")
        (top / "home").chmod(0o700)

    def made(self, path: Path) -> Path:
        path.mkdir(parents=True)
        if self.account:
            os.chown(path, self.account.uid, self.account.gid)
        return path

    def run(self, line: str, view: View | None = None, cwd: Path | None = None, **asked: Any) -> Finished:
        seen = view or View(places=(self.place,))
        command = Command(argv=(line,), cwd=cwd or self.place, shell=True, **{"timeout_seconds": 20, **asked})  # noqa: S604
        return run(isolated(command, seen, self.settings))


@pytest.fixture
def site() -> Iterator[Site]:
    with open_directory() as directory:
        made = Site(directory)
        if (found := boundary(made.settings)).bubblewrap is None:
            pytest.skip(f"no sandbox here: {found.why}")
        yield made
    assert shims() == []


def test_a_command_works_in_its_own_place_with_the_programs_of_the_machine(site: Site) -> None:
    ended = site.run(f"pwd; echo made > it && {PYTHON} 'print(6 * 7)' && echo $HOME && echo x > ~/x && cat ~/x")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.stdout == f"{site.place}\n42\n/tmp/home\nx\n"
    assert (site.place / "it").read_text() == "made\n"


def test_nothing_of_the_installation_shows_nor_of_other_worktrees(site: Site) -> None:
    ended = site.run("cd ../../..; find . -not -type d -o -path '*other*'; cat servers.json")
    assert (ended.stdout, ended.exit_code) == ("", 1)


def test_interlocks_own_data_is_empty_also_inside_the_plans_folder(site: Site) -> None:
    folder = site.made(site.top / "plan")
    site.settings = Settings(home=folder / ".interlock")
    (folder / ".interlock").mkdir()
    (folder / ".interlock" / "servers.json").write_text("password")
    ended = site.run("echo hello > made; ls -A .interlock; cat .interlock/*", View(folder=folder), folder)
    assert ended.stdout == ""
    assert (folder / "made").exists()


def test_what_an_operator_names_can_be_read_and_not_changed(site: Site) -> None:
    tools = site.made(site.top / "tools")
    (tools / "tool").write_text("#!/bin/sh\necho works\n")
    (tools / "tool").chmod(0o755)
    site.settings = site.settings.model_copy(update={"sandbox_reads": (tools,)})
    ended = site.run(f"{tools}/tool; echo x > {tools}/new")
    assert (ended.stdout, "Read-only" in ended.stderr) == ("works\n", True)


def test_a_plan_cannot_list_what_belongs_to_interlock(site: Site) -> None:
    for path in (site.top / "home", site.top / "home" / "servers.json", site.top, site.other, Path("/")):
        with pytest.raises(BadInput, match=r"^reads: "):
            site.run("true", View(places=(site.place,), plan_reads=(path,)))
    for path in map(Path, ("/proc", "/proc/1", "/proc/self/environ", "/sys", "/sys/kernel", "/dev", "/dev/shm")):  # noqa: S108
        with pytest.raises(BadInput, match=r"^reads: .* in /proc, /sys or /dev"):
            site.run("true", View(places=(site.place,), plan_reads=(path,)))
    with pytest.raises(BadInput, match="there is no"):
        site.run("true", View(places=(site.place,), plan_reads=(site.top / "missing",)))


def test_no_link_leads_a_plan_out_of_a_folder_in_which_commands_may_write(site: Site) -> None:
    plans, away = site.made(site.top / "plans"), site.made(site.top / "away")
    one, inside = site.made(plans / "one"), site.made(plans / "one" / "inside")
    (away / "below").mkdir()
    (away / "key").write_text("secret")
    assert site.run(f"ln -s {away} {one}/link", View(folder=one), one).exit_code == 0  # what a command may do
    led = (one / "link", one / "link" / "key", one / "link" / ".." / "away", one / "inside" / ".." / "link" / "below")
    for path in led:
        with pytest.raises(BadInput, match="a link leads out"):
            site.run("true", View(folder=one, plan_reads=(path,)), one)
    for path in (away, one / ".." / ".." / "away", inside):  # by no link that a command made
        assert site.run("true", View(folder=one, plan_reads=(path,)), one).exit_code == 0
    site.settings = site.settings.model_copy(update={"api_plan_folders": (plans,)})
    with pytest.raises(BadInput, match="a link leads out"):  # made by a plan whose folder is `plans/one`
        site.run("true", View(folder=one / "link"), one / "link")


def test_a_plans_folder_that_is_everybodys_is_refused(site: Site) -> None:
    for folder in (Path("/"), Path.home(), Path("/tmp"), Path("/etc/..")):  # noqa: S108 - these exactly
        with pytest.raises(BadInput, match="a folder of its own"):
            site.run("true", View(folder=folder), folder)


NOBODY = """
import os
print(os.getuid() == int(open("/proc/self/uid_map").read().split()[0]) != 0, os.getgroups() in ([], [os.getgid()]))
for line in open("/proc/self/status"):
    if line.startswith(("CapEff", "CapBnd", "NoNewPrivs")):
        print(int(line.split()[1], 16))
"""


def test_nobody_in_there_is_root_or_can_become_it(site: Site) -> None:
    ended = site.run(f"{PYTHON} '{NOBODY}'; unshare -U true || echo refused")
    assert ended.stdout == "True True\n0\n0\n1\nrefused\n"


REFUSALS = {
    "no program": (("no-such-program",), 127, f"no-such-program: No such file or directory{ELSEWHERE}"),
    "not executable": (("./plain",), 126, "./plain: Permission denied"),
    "a directory": (("/usr",), 126, "/usr: Permission denied"),
}


@pytest.mark.parametrize(("argv", "code", "reason"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_command_that_cannot_run_says_why_as_without_a_sandbox(
    site: Site, argv: tuple[str, ...], code: int, reason: str
) -> None:
    (site.place / "plain").write_text("#!/bin/sh\n")
    ended = run(isolated(Command(argv, site.place), View(places=(site.place,)), site.settings))
    assert (ended.started, ended.exit_code, ended.reason) == (False, code, reason)


def test_a_missing_working_directory_is_named(site: Site) -> None:
    ended = site.run("true", cwd=site.place / "no")
    assert (ended.started, ended.exit_code) == (False, 126)
    assert ended.reason == f"working directory {site.place}/no: No such file or directory"


def test_its_end_is_told_as_it_was(site: Site) -> None:
    assert site.run("exit 7").exit_code == 7
    killed = site.run("kill -9 $$")
    assert (killed.signal, killed.exit_code, killed.reason) == (9, 137, "ended by SIGKILL")


def test_sigterm_reaches_the_command_and_gives_it_its_grace(site: Site) -> None:
    ended = site.run("trap 'echo tidied; exit 3' TERM; touch up; sleep 300 & wait", timeout_seconds=3, grace_seconds=30)
    assert (ended.timed_out, ended.exit_code, ended.stdout) == (True, 3, "tidied\n")
    assert ended.duration_seconds < 20


def test_who_ignores_sigterm_is_killed(site: Site) -> None:
    ended = site.run("trap '' TERM; while :; do sleep 0.05; done", timeout_seconds=2, grace_seconds=0.3)
    assert (ended.timed_out, ended.signal, ended.survivors) == (True, signal.SIGKILL, 0)


def test_what_it_leaves_running_ends_with_it(site: Site) -> None:
    marker = f"30{os.getpid()}"
    ended = site.run(f"(setsid sleep {marker} &); sleep 0.1; exit 0")
    assert ended.exit_code == 0
    assert [each for each in psutil.process_iter(["cmdline"]) if marker in (each.info["cmdline"] or [])] == []


HOG = f"{PYTHON} 'import time; x = bytearray(400 << 20); time.sleep(20)'"


def test_memory_is_bounded_for_all_its_processes_together(site: Site) -> None:
    ended = site.run(f"{HOG} & {HOG} & wait", tree_bytes=600 * MIB)
    assert (ended.signal, ended.succeeded()) == (signal.SIGKILL, False)
    assert "of memory together, of 600 MiB" in ended.reason


MEMFD = (
    "import os, time; made = os.memfd_create('x'); [os.write(made, bytes(1 << 20)) for _ in range(700)]; time.sleep(20)"
)


def test_memory_behind_a_descriptor_counts_as_well(site: Site) -> None:
    assert "of memory together, of 300 MiB" in site.run(f'{PYTHON} "{MEMFD}"', tree_bytes=300 * MIB).reason


UNCOUNTED = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def told(call, *given):
    failed = getattr(libc, call)(*map(ctypes.c_long, given)) < 0
    print(call, errno.errorcode[ctypes.get_errno()] if failed else "well")
told("shmget", 0, 64 << 10, 0o1600)
told("shmget", 0, 65 << 10, 0o1600)
told("shmget", 0, 1 << 32, 0o1600)
told("semget", 0, 250, 0o1600)
told("semget", 0, 251, 0o1600)
told("syscall", KEYCTL, 0, -3, 0)
told("syscall", KEYCTL | 1 << 30, 0, -3, 0)
"""


def test_what_no_process_is_counted_for_is_bounded_by_the_call_that_asks_for_it(site: Site) -> None:
    keyctl = {"x86_64": "250", "aarch64": "219"}.get(platform.machine())
    if keyctl is None:
        pytest.skip(f"nothing is filtered on {platform.machine()}")
    (site.place / "uncounted.py").write_text(UNCOUNTED.replace("KEYCTL", keyctl))
    ended = site.run(f"{sys.executable} -I -S uncounted.py")
    assert ended.stdout.split()[1::2] == ["well", "EINVAL", "EINVAL", "well", "EINVAL", "ENOSYS", "ENOSYS"], ended


def test_a_fork_bomb_gets_its_processes_and_no_more(site: Site) -> None:
    bomb = "i=0; while [ $i -lt 60 ]; do sleep 3 & i=$((i+1)); done; wait"
    ended = site.run(bomb, processes=20)
    assert "Cannot fork" in ended.stderr or "Resource temporarily unavailable" in ended.stderr
    assert ended.duration_seconds < 30


FILLERS = {
    "a file": "dd if=/dev/zero of=big bs=1M count=4000; sleep 20",
    "many": "i=0; while :; do dd if=/dev/zero of=big.$i bs=1M count=8 2>&1; i=$((i+1)); done",
    "one without a name": "exec 3> big; rm big; dd if=/dev/zero bs=1M count=4000 >&3; sleep 20",
}


@pytest.mark.parametrize("line", FILLERS.values(), ids=FILLERS.keys())
def test_what_it_writes_to_disk_is_bounded(site: Site, line: str) -> None:
    ended = site.run(line, disk_bytes=64 * MIB)
    assert "to disk, of 64 MiB" in ended.reason


@pytest.mark.parametrize("where", ["sub", "link"])
def test_where_it_begins_does_not_matter_to_what_it_may_write(site: Site, where: str) -> None:
    site.made(site.place / "sub")
    (site.place / "link").symlink_to("/dev/shm")  # noqa: S108
    filler = f"dd if=/dev/zero of={site.place}/big bs=1M count=4000; sleep 20"
    assert "to disk, of 64 MiB" in site.run(filler, cwd=site.place / where, disk_bytes=64 * MIB).reason


def test_a_file_is_bounded_and_so_is_its_tmp(site: Site) -> None:
    site.settings = site.settings.model_copy(update={"command_tmp_bytes": 4 * MIB})
    assert "a file reached its limit" in site.run("dd if=/dev/zero of=big bs=1M count=99", file_bytes=8 * MIB).reason
    ended = site.run("for at in /tmp/x /dev/x /x /usr/x; do dd if=/dev/zero of=$at bs=1M count=9; done")
    assert ended.stderr.count("No space left on device") == 1
    assert ended.stderr.count("Read-only file system") + ended.stderr.count("Permission denied") == 3


def test_its_variables_reach_nothing_outside_of_its_sandbox(site: Site) -> None:
    """bubblewrap begins outside; what `LD_PRELOAD` names would be run there. Here the loader is asked to write."""
    seen = site.made(site.top / "seen")
    asked = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{seen}/ld", "INTERLOCK_COMMAND": "mine"}
    ended = site.run("echo $LD_DEBUG_OUTPUT $INTERLOCK_COMMAND", env=asked)
    variable, mark = ended.stdout.splitlines()[-1].split()  # the loader in there says the rest
    assert (variable, list(seen.iterdir())) == (f"{seen}/ld", [])
    assert mark.startswith(f"{site.settings.home.absolute()}/")
    shown = site.run("true", env={"X": "y\0--bind\0/\0/"})
    assert (shown.started, "NUL" in shown.reason) == (False, True)


def test_processor_time_is_bounded(site: Site) -> None:
    assert site.run("while :; do :; done", cpu_seconds=1).reason.endswith("it used its 1 s of processor time")


def test_a_plans_limits_may_be_lower_than_the_installations_and_never_higher(site: Site) -> None:
    site.settings = site.settings.model_copy(update={"command_processes": 64, "command_disk_bytes": 100 * MIB})
    asked = Command(("true",), site.place, processes=100_000, disk_bytes=MIB)
    bounded = isolated(asked, View(places=(site.place,)), site.settings)
    assert (bounded.processes, bounded.disk_bytes) == (64, MIB)


def test_required_and_not_to_be_had_is_refused_with_the_cure(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.workers.isolation.boundary.candidates", lambda: iter(()))
    monkeypatch.setattr("interlock.workers.isolation.boundary._known", {})
    with pytest.raises(BadInput, match=r"a sandbox is required .* docs/sandbox\.md"):
        site.run("true", View(places=(site.place,), mode="require"))
    site.settings = site.settings.model_copy(update={"sandbox": "require"})
    with pytest.raises(BadInput, match="a sandbox is required"):
        site.run("true")
    site.settings = site.settings.model_copy(update={"sandbox": "auto"})
    assert isolated(Command(("true",), site.place), View(), site.settings).sandbox is None


def test_a_plan_in_a_folder_that_its_commands_may_not_have_is_refused_when_it_is_submitted(site: Site) -> None:
    plan = read_plan('name: p\nworkstreams: [{id: w, tasks: [{id: t, command: ["true"], cwd: a}]}]\n')
    home = site.settings.home
    for folder, words in {
        home / "plans": "is a directory of Interlock itself",
        Path("/tmp"): "the plan's folder",  # noqa: S108
    }.items():
        with pytest.raises(BadInput, match=words):
            require_sandbox(plan, folder, site.settings)
        with pytest.raises(BadInput, match=words):
            site.run("true", View(folder=folder), folder)
    require_sandbox(plan, site.top / "plan", site.settings)
    require_sandbox(plan, home, site.settings.model_copy(update={"sandbox": "off"}))
