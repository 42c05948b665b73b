"""Real git repositories for tests, and everything about one that could change."""

import os
import subprocess
from pathlib import Path

from workers.repository.git import Identity
from workers.repository.naming import branch_name
from workers.repository.worktree import Worktree, open_worktree

AUTHOR = Identity("Ann Agent", "ann@localhost")
FILES = {"app.py": "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n", "docs/read me.txt": "Hello\n"}


def git(where: Path, *arguments: str, given: str | None = None) -> str:
    """Run git as a user would, with nobody's configuration."""
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **{f"GIT_{role}_{what}": "user" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    done = subprocess.run(
        ["git", *arguments], cwd=where, env=environment, input=(given or "").encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()  # line ends as they are: a patch consists of them


def make(path: Path) -> Path:
    """A user's checkout on `main`, with one commit."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    put(path, FILES)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "First")
    return path


def put(where: Path, files: dict[str, str]) -> None:
    """Write files."""
    for name, content in files.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(content, newline="")


def opened(checkout: Path, name: str = "w", base: str = "main") -> Worktree:
    """A workstream's worktree, beside the checkout."""
    found = open_worktree(checkout, base, branch_name("r", name), checkout.parent / "trees" / name)
    assert isinstance(found, Worktree), found
    return found


def diff(where: Path, changed: dict[str, str | None]) -> str:
    """The patch that makes these changes (None: delete) to `where`, which is left as it was."""
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
    """Refs, HEAD, index and working files, as far as anybody could tell a difference."""
    files = [each for each in sorted(checkout.rglob("*")) if ".git" not in each.parts and each.is_file()]
    return {
        "refs": git(checkout, "for-each-ref"),
        "head": (checkout / ".git" / "HEAD").read_text(),
        "index": git(checkout, "ls-files", "--stage"),
        "status": git(checkout, "status", "--porcelain", "--ignored"),
        "worktrees": git(checkout, "worktree", "list"),
        **{str(each): each.read_bytes().hex() for each in files},
    }
