"""Patches: diffs that are judged by what they say, and what git makes of those that pass."""

import os
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from interlock.workers.git import apply, worktree
from interlock.workers.git.command import GitFault
from interlock.workers.git.git_directories import own_directory
from interlock.workers.git.policy import PatchPolicy, check
from tests import repositories
from tests.fuzz.door import Door, Ground, Target
from tests.fuzz.shapes import spliced

POLICY = PatchPolicy(forbidden_paths=("secret/**", "*.key"), max_files=20, max_bytes=50_000)
PATHS = (
    "app.py",
    "docs/read me.txt",
    "new.py",
    "secret/x",
    "a.key",
    "../out",
    "/etc/x",
    ".git/hooks/pre-commit",
    ".GIT/config",
    "sub/.g\u200cit/config",
    "git~1/x",
    ".gitmodules",
    ".gitattributes",
    ".interlock/x",
    "a\\b",
    "x\ty",
    '"q"',
    "link/x",
    "-rf",
    "e" * 300,
)
MODES = ("100644", "100755", "120000", "160000", "040000", "104755", "000000", "777777777777")
BODIES = (
    "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    "@@ -0,0 +1 @@\n+../../etc/passwd\n\\ No newline at end of file\n",
    "@@ -0,0 +1,2 @@\n+*.py filter=x\n+two\n",
    "@@ -1 +0,0 @@\n-Hello\n",
    "@@ -1,99999999999 +1,1 @@\n x\n",
    "@@ -1 +1 @@\n",
    "GIT binary patch\nliteral 3\nKc$~{iM*shI00961\n\nliteral 0\nHc$@<O00001\n\n",
    "Binary files a/x and b/x differ\n",
    "",
)


def _opened(ground: Ground) -> Target:
    where = repositories.opened(repositories.make(ground.directory / "user"))
    outside = _outside(ground.directory, where.path)

    def judge(data: bytes) -> None:
        text = data.decode(errors="surrogateescape")
        checked = check(text, POLICY)
        str(checked)
        if not checked.passed:
            return
        try:
            done = apply.apply(where, text, "ledger-1", policy=POLICY)
        except GitFault as fault:
            raise AssertionError("a patch that was judged sound is git's fault") from fault
        try:
            if isinstance(done, apply.AppliedPatch):
                _within(where.path)
            assert _outside(ground.directory, where.path) == outside, "something beside the worktree was changed"
        finally:
            worktree.restore(where)
            with worktree.hold(where) as held:
                held.run_in_worktree("clean", "-ffdxq")  # what a patch's own .gitignore names

    return judge


def _within(tree: Path) -> None:
    for directory, names, files in os.walk(tree):
        for name in (*names, *files):
            path = Path(directory, name)
            if path.name != ".git":
                assert path.resolve().is_relative_to(tree.resolve()), f"{path} leads out of the worktree"
            relative = path.relative_to(tree).parts
            assert "secret" not in relative[:1], f"{path} is forbidden"
            assert not name.endswith(".key"), f"{path} is forbidden"


def _outside(top: Path, tree: Path) -> dict[str, int]:
    """Every file that is neither the worktree's or its git directory's, nor one of git's objects, with its time."""
    own = (str(tree), str(own_directory(tree)), str(top / "user" / ".git"))
    found = [Path(directory, name) for directory, _, files in os.walk(top) for name in files]
    kept = [each for each in found if not str(each).startswith(own)]
    kept += [top / "user" / ".git" / name for name in ("config", "HEAD", "index")]
    kept += [*(top / "user" / ".git" / "hooks").iterdir(), *(top / "user" / ".git" / "refs" / "heads").iterdir()]
    return {str(each): each.stat().st_mtime_ns for each in kept if each.exists()}


@st.composite
def _diff(draw: st.DrawFn) -> bytes:
    text = ""
    for _ in range(draw(st.integers(1, 3))):
        old = draw(st.sampled_from(PATHS))
        new = draw(st.sampled_from(PATHS)) if draw(st.integers(0, 3)) == 0 else old
        text += f"diff --git a/{old} b/{new}\n"
        mode = draw(st.sampled_from(MODES))
        text += draw(
            st.sampled_from(
                (
                    "",
                    f"new file mode {mode}\nindex 000..111\n",
                    f"deleted file mode {mode}\nindex 111..000\n",
                    f"old mode 100644\nnew mode {mode}\n",
                    f"similarity index 100%\nrename from {old}\nrename to {new}\n",
                    f"similarity index 100%\ncopy from {old}\ncopy to {new}\n",
                )
            )
        )
        before, after = draw(
            st.sampled_from(((f"a/{old}", f"b/{new}"), ("/dev/null", f"b/{new}"), (f"a/{old}", "/dev/null")))
        )
        text += f"--- {before}\n+++ {after}\n" if draw(st.integers(0, 5)) else ""
        text += draw(st.sampled_from(BODIES))
    return text.encode()


SOUND = (
    b"--- a/app.py\n+++ b/app.py\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    b"diff --git a/n b/n\nnew file mode 120000\nindex 0000000..1111111\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n"
    b"+app.py\n\\ No newline at end of file\n",
    b"diff --git a/app.py b/moved.py\nsimilarity index 100%\nrename from app.py\nrename to moved.py\n",
    b"diff --git a/app.py b/app.py\nold mode 100644\nnew mode 100755\n",
    b"diff --git a/docs/read me.txt b/docs/read me.txt\ndeleted file mode 100644\n--- a/docs/read me.txt\n"
    b"+++ /dev/null\n@@ -1 +0,0 @@\n-Hello\n",
)
WRITTEN: SearchStrategy[bytes] = _diff() | st.sampled_from(SOUND)

PATCHES = Door(
    "patches",
    "Any patch gets a verdict; one that passes changes its worktree only where it may, and nothing else.",
    _opened,
    WRITTEN | spliced(WRITTEN),
    SOUND,
    examples=24,
)
