"""Run tests as a temporary user, in namespaces that end together with all their processes.

Only for root. The user exists only in a private copy of `/etc`. Directories that it could not reach (a Python below
/root) are mounted at their path, read-only; it has its own `/tmp` and `/dev/shm`. Nothing is left on the machine,
however the run ends.
"""

import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from interlock.workers.system.users import Account, obstacle

ROOT = Path(__file__).parents[1]
NAME = "interlock-tests"
IDS = range(61_000, 62_000)  # neither useradd's nor systemd's
SPACES = ("--mount", "--pid", "--fork", "--kill-child", "--ipc", "--propagation", "private", "--mount-proc")
FIRST_PID = 30_000  # small pids would also be those of processes inside a sandbox
PYTEST = (
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:randomly",
    "--tb=short",
    "--show-capture=no",
    "-rs",
)


def refusal() -> str | None:
    """Why such namespaces cannot be made here; None if they can."""
    if missing := [each for each in ("unshare", "setpriv") if shutil.which(each) is None]:
        return f"util-linux is missing: {', '.join(missing)}"
    done = subprocess.run(
        ["unshare", *SPACES, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"],  # noqa: S108
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip() or "unshare failed" if done.returncode else None


def account() -> Account:
    """A random unused uid, so that concurrent test sessions get different ones."""
    known = {int(line.split(":")[2]) for line in Path("/etc/passwd").read_text().splitlines() if line.count(":") == 6}
    free = random.SystemRandom().choice([each for each in IDS if each not in known])
    return Account(NAME, free, free)


def pytest_as(who: Account, words: tuple[str, ...], top: Path, timeout_seconds: float) -> str:
    """Run tests; returns pytest's whole output.

    Args:
        who: the user.
        words: pytest's arguments; files are relative to the checkout.
        top: a directory for this run alone, which can be deleted afterwards.
        timeout_seconds: the run is killed after this time.
    """
    # All of /etc: a mount on `passwd` alone is gone as soon as a useradd outside replaces that file.
    shutil.copytree("/etc", top / "etc", symlinks=True, ignore=lambda _, names: {*names} & {"shadow", "gshadow"})
    for name, entry in (("passwd", f"{who.uid}:{who.gid}::/tmp/home:/bin/sh"), ("group", f"{who.gid}:")):
        with (top / "etc" / name).open("a") as file:
            file.write(f"{NAME}:x:{entry}\n")
    (top / "tmp").mkdir()
    (top / "tmp").chmod(0o1777)
    with subprocess.Popen(
        ["unshare", *SPACES, "sh", "-ec", _script(who, words, top)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout_seconds)
        except BaseException:
            process.kill()  # which kills the first process of the namespace, and so all of them
            raise
    return said


def _script(who: Account, words: tuple[str, ...], top: Path) -> str:
    """The script that root runs in the namespaces before it becomes that user."""
    seen = dict.fromkeys(Path(each) for each in (sys.base_prefix, sys.prefix, ROOT))
    closed = dict.fromkeys(found for each in seen if (found := obstacle(each, who)))
    lines = [f"echo {FIRST_PID} > /proc/sys/kernel/ns_last_pid"]
    # Bytecode that a command wrote, with umask 077, is its user's alone: every process here would compile it once more.
    lines.append(f"find {shlex.quote(str(ROOT))} -name __pycache__ -prune -exec chmod -R a+rX {{}} + || true")
    for number, each in enumerate(seen):
        (top / "tmp" / f"{number}").mkdir()
        lines.append(f"mount --bind {shlex.quote(str(each))} {top}/tmp/{number}")  # noqa: S108
    lines += [f"mount -t tmpfs -o mode=0755,size=1m tmpfs {shlex.quote(str(each))}" for each in closed]
    # First /tmp: the checkout may be below it.
    lines += [f"mount --bind {top}/etc /etc", f"mount --rbind {top}/tmp /tmp"]  # noqa: S108
    for number, each in enumerate(seen):
        lines.append(f"mkdir -p {shlex.quote(str(each))}; mount -o bind,ro /tmp/{number} {shlex.quote(str(each))}")
        lines.append(f"umount -l /tmp/{number}")
    lines += ["mount -t tmpfs -o mode=1777 tmpfs /dev/shm", f"cd {ROOT}"]
    user = ["setpriv", f"--reuid={who.uid}", f"--regid={who.gid}", "--clear-groups", "env", "-i"]
    given = ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp/home", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"]
    lines += [f"{shlex.join(user)} mkdir -m 0700 /tmp/home"]
    lines.append(shlex.join([*user, *given, sys.executable, "-m", "pytest", *PYTEST, *words]) + " || exit")
    lines.append("exit 0")  # keeps the shell as the first process, which pytest must not be
    return "\n".join(lines)
