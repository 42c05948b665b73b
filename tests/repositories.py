"""Real git repositories for tests, and snapshots to detect any change in one."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from interlock.workers.git.ref_names import branch_name
from interlock.workers.git.worktree import Worktree, open_worktree

FILES = {"app.py": "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n", "docs/read me.txt": "Hello\n"}


def before_git(programs: Path, script: str) -> str:
    """A PATH with a `git` that first runs a shell script; if the script does not exit, the real git runs.

    Args:
        programs: the directory to make for it.
        script: the shell's lines.
    """
    programs.mkdir()
    (programs / "git").write_text(f'#!/bin/sh\n{script}\nexec {shutil.which("git")} "$@"\n')
    (programs / "git").chmod(0o755)
    return f"{programs}{os.pathsep}{os.environ['PATH']}"


def killing(programs: Path, at: int) -> str:
    """A PATH on which the `at`-th git command kills its caller, or only git if the caller is another user's."""
    counted = f"n=$(($(cat {programs}/count) + 1)); echo $n > {programs}/count"
    path = before_git(programs, f"{counted}\nif [ $n = {at} ]; then kill -9 $PPID || kill -9 $$; exit 1; fi")
    (programs / "count").write_text("0")
    return path


def git(where: Path, *arguments: str, given: str | None = None) -> str:
    """Run git without any user's configuration."""
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **{f"GIT_{role}_{what}": "user" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *arguments],
        cwd=where,
        env=environment,
        input=(given or "").encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()  # without newline translation, which would change patches


def make(path: Path) -> Path:
    """Make a user's checkout on `main`, with one commit."""
    path.mkdir(parents=True)
    for name, content in _first().items():
        (path / name).mkdir() if content is None else (path / name).write_bytes(content)
    return path


@cache
def _first() -> Mapping[Path, bytes | None]:
    """Such a checkout's files and directories (None), which git is asked for once in a process."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        git(path, "init", "-q", "-b", "main", "--template=")
        for each in ("hooks", "info"):
            (path / ".git" / each).mkdir()
        put(path, FILES)
        git(path, "add", "-A")
        git(path, "commit", "-qm", "First")
        found = sorted(path.rglob("*"))
        return {each.relative_to(path): each.read_bytes() if each.is_file() else None for each in found}


def put(where: Path, files: dict[str, str]) -> None:
    """Write files."""
    for name, content in files.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(content, newline="")


def opened(checkout: Path, name: str = "w", base: str = "main") -> Worktree:
    """Make a workstream's worktree beside the checkout."""
    found = open_worktree(checkout, base, branch_name("r", name), checkout.parent / "trees" / name)
    assert isinstance(found, Worktree), found
    return found


def diff(where: Path, changed: dict[str, str | None]) -> str:
    """A patch with these changes (None: delete) to `where`, which itself stays unchanged."""
    for name, content in changed.items():
        if content is None:
            (where / name).unlink()
        else:
            put(where, {name: content})
    git(where, "add", "-A")
    made = git(where, "diff", "--cached", "--binary", "HEAD")
    git(where, "reset", "-q", "--hard")
    return made


def everything(checkout: Path) -> dict[str, str]:
    """A snapshot of refs, HEAD, index and working files, for comparison."""
    files = [each for each in sorted(checkout.rglob("*")) if ".git" not in each.parts and each.is_file()]
    return {
        "refs": git(checkout, "for-each-ref"),
        "head": (checkout / ".git" / "HEAD").read_text(),
        "index": git(checkout, "ls-files", "--stage"),
        "status": git(checkout, "status", "--porcelain", "--ignored"),
        "worktrees": git(checkout, "worktree", "list"),
        **{str(each): each.read_bytes().hex() for each in files},
    }
