"""What a command does in its worktree stays there: it neither reaches the user's repository nor judges its own work."""

import contextlib
import os
import random
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlock.workers.git import git_directories as desk
from interlock.workers.git import inside as files
from interlock.workers.git import protected_paths, repository, worktree
from interlock.workers.git.apply import AppliedPatch, apply, commit
from interlock.workers.git.archive import ArchivedWorkstream, archive
from interlock.workers.git.command import GitFault
from interlock.workers.git.git_directories import own_directory
from interlock.workers.git.merge import merge
from interlock.workers.git.policy import Checked, PatchPolicy, check
from interlock.workers.git.ref_names import branch_name
from interlock.workers.git.results import Committed, Refusal
from interlock.workers.git.worktree import Worktree, close, import_commits, open_worktree, restore, temporary
from interlock.workers.isolation.apart import Isolation
from interlock.workers.isolation.boundary import as_commands
from interlock.workers.settings import Settings
from interlock.workers.system.users import Account, commands_account, spawn_options
from interlock.workflows.errors import InterlockError
from tests.repositories import diff, everything, git, make, opened, put
from tests.waiting import eventually

PATCH = "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n"
STRICT = PatchPolicy(allowed_paths=("**",), forbidden_paths=("secret/",), max_files=4, max_changed_lines=20)


def account() -> Account | None:
    """Whom commands run as here: none where we are not root."""
    return commands_account(Settings())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A user's repository, where the commands' account can get to."""
    for each in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and each != Path("/tmp"):  # noqa: S108
            each.chmod(each.stat().st_mode | 0o011)
    return make(tmp_path / "repo")


@pytest.fixture
def confined(tmp_path: Path) -> Isolation:
    """What keeps git apart in an installation's worktrees, with a sandbox."""
    isolation = as_commands(Settings(home=tmp_path / "home"))
    if not isolation.bubblewrap:
        pytest.skip("no sandbox can be made here")
    return isolation


def given(checkout: Path, name: str = "w", isolation: Isolation | None = None) -> Worktree:
    """A worktree that belongs to the commands' account."""
    path = checkout.parent / "trees" / name
    found = open_worktree(checkout, "main", branch_name("r", name), path, isolation=isolation or Isolation(account()))
    assert isinstance(found, Worktree), found
    return found


def as_command(found: Worktree, script: str) -> str:
    """Run some shell in a worktree, as the commands' account."""
    names = {f"GIT_{role}_{what}": "c" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=found.path,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **names},
        capture_output=True,
        text=True,
        check=False,
        **spawn_options(found.isolation.account),  # type: ignore[call-overload]
    )
    return str(done.stdout + done.stderr)


def committed(found: Worktree, files: dict[str, str], script: str = "") -> None:
    """What a task's command may do: write files and commit them by itself."""
    put(found.path, files)
    if found.isolation.account:
        subprocess.run(["chown", "-hR", f"{found.isolation.account.uid}", *found.path.iterdir()], check=True)
    said = as_command(found, f"{script or 'true'}; git add -A && git commit -qm mine")
    assert "fatal" not in said, said


def users_own(checkout: Path) -> dict[str, str]:
    """The user's configuration, hooks and refs but our own."""
    hidden = [
        each for each in (checkout / ".git").rglob("*") if each.is_file() and each.parent.name in (".git", "info")
    ]
    kept = {str(each): each.read_bytes().hex() for each in hidden if not each.name.startswith(("interlock", "index"))}
    refs = [line for line in git(checkout, "for-each-ref").splitlines() if "interlock/" not in line]
    return kept | {"refs": "\n".join(refs), "hooks": str(sorted((checkout / ".git" / "hooks").iterdir()))}


def test_a_command_that_moves_refs_and_plants_programs_does_so_in_its_own_repository_only(
    checkout: Path, tmp_path: Path
) -> None:
    found, ran = given(checkout), tmp_path / "ran"
    before = users_own(checkout)
    program = f"touch {ran}-$(id -u)"
    put(found.path, {"x.sh": f"#!/bin/sh\n{program}\n"})
    as_command(found, 'git commit -q --allow-empty -m "not asked for"; git update-ref refs/heads/main HEAD')
    as_command(found, f"git config core.fsmonitor '{program}'; git config filter.x.clean '{program}; cat'")
    as_command(found, f"git config filter.x.smudge '{program}; cat'; git config include.path /etc/passwd")
    as_command(found, f"git config diff.external '{program}'; git config core.sshCommand '{program}'")
    as_command(
        found, "git config core.worktree /; git config core.hooksPath .; echo '* filter=x' > .git/info/attributes"
    )
    as_command(found, f"mkdir -p .git/hooks; for h in post-checkout reference-transaction post-index-change; do "
                      f"printf '#!/bin/sh\\n{program}\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done")  # fmt: skip
    (found.path / "x.sh").unlink()
    for each in tmp_path.glob("ran*"):
        each.unlink()  # what its own git ran, it ran as itself
    assert isinstance(apply(found, PATCH, "L-1"), AppliedPatch)
    assert isinstance(commit(found, "L-1", "m"), Committed)
    restore(found)
    assert users_own(checkout) == before
    assert isinstance(merge(found, "m"), Committed)
    close(found)
    assert not list(tmp_path.glob("ran*")), "git that we run was told what to run"
    assert (checkout / "app.py").read_text().startswith("1\ntwo\n")


def test_a_nested_repository_at_a_submodules_place_is_not_looked_into(checkout: Path, tmp_path: Path) -> None:
    found, ran = given(checkout), tmp_path / "ran"
    as_command(found, "git init -q sub && cd sub && git commit -q --allow-empty -m x && cd .. && git add sub")
    as_command(
        found, f"cd sub; echo '* filter=x' > .gitattributes; git config filter.x.clean 'touch {ran}; cat'; echo > f"
    )
    as_command(found, f"cd sub; git add f; rm -f {ran}; echo 2 > f")
    apply(found, PATCH, "L-1")
    archive(found, tmp_path / "archive", {})
    assert not ran.exists()


@pytest.mark.parametrize(
    ("files", "script", "rule"),
    [
        ({"secret/key": "x\n"}, "", "forbidden_paths"),
        ({f"f{n}": "x\n" for n in range(5)}, "", "max_files"),
        ({"long": "x\n" * 21}, "", "max_changed_lines"),
        ({"bin": "\0"}, "", "binary"),
        ({}, "ln -s /etc/passwd link", "symlink"),
        ({".gitattributes": "* filter=x\n"}, "", "attributes"),
        ({}, "mkdir sub; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -qm s",
         "submodule"),
        ({}, "mkdir secret; git mv app.py secret/app.py", "forbidden_paths"),
        ({}, "git checkout -q --orphan evil; mkdir secret; echo x > secret/k; git add -A; git commit -qm evil; "
             "git checkout -qf interlock/r/w; git merge -q --allow-unrelated-histories -X theirs evil",
         "forbidden_paths"),
    ],
)  # fmt: skip
def test_what_a_command_committed_is_judged_as_a_patch_is_before_it_lands(
    checkout: Path, files: dict[str, str], script: str, rule: str
) -> None:
    found = given(checkout)
    committed(found, files, script)
    before = everything(checkout)
    refused = merge(found, "m", policy=STRICT)
    assert isinstance(refused, Checked), refused
    assert rule in {each.rule for each in refused.reasons}
    after = everything(checkout)
    assert {key for key in before if before[key] != after[key]} <= {"refs"}
    assert git(checkout, "log", "--format=%s", "main") == "First\n"


def test_what_a_command_committed_well_lands_with_the_patches(checkout: Path) -> None:
    found = given(checkout)
    committed(found, {"made": "x\n"})
    assert isinstance(apply(found, PATCH, "L-1"), AppliedPatch)
    assert isinstance(commit(found, "L-1", "m"), Committed)
    assert as_command(found, "git status --porcelain; git log --format=%s") == "m\nmine\nFirst\n"
    assert isinstance(merge(found, "m", policy=STRICT), Committed)
    assert (checkout / "made").read_text() == "x\n"


def test_a_command_cannot_take_a_committed_patch_back_by_rewriting_its_branch(checkout: Path) -> None:
    found = given(checkout)
    assert isinstance(apply(found, PATCH, "L-1"), AppliedPatch)
    assert isinstance(commit(found, "L-1", "m"), Committed)
    as_command(found, "git reset -q --hard HEAD~; git commit -q --allow-empty -m rewritten")
    assert "rewritten" in str(import_commits(found))
    refused = merge(found, "m")
    assert isinstance(refused, Checked)
    as_command(found, "git reset -q --hard HEAD~")
    assert isinstance(merge(found, "m"), Committed), "taken back only there: the patch still lands"
    assert (checkout / "app.py").read_text().startswith("1\ntwo\n")


@pytest.mark.parametrize(
    "script",
    [
        "rm -rf .git",
        "rm -rf .git; ln -s ../../repo/.git .git",
        "rm -rf .git; echo 'gitdir: ../../repo/.git' > .git",
        "rm -rf .git/objects; ln -s ../../../repo/.git/objects .git/objects",
        "echo ../../../repo/.git/objects > .git/objects/info/alternates",
        "rm -rf .git/refs; ln -s ../../../repo/.git/refs .git/refs",
        "mkfifo .git/refs/heads/interlock/r/x; rm .git/refs/heads/interlock/r/w; mkfifo .git/refs/heads/interlock/r/w",
        "rm .git/index; mkdir .git/index.lock; printf garbage > .git/index",
        "git commit -q --allow-empty -m x; for f in .git/objects/??/*; do chmod +w $f; printf garbage > $f; done",
        "chmod 000 .git docs; mkdir -p a/b/c; chmod 000 a/b",
        "git pack-refs --all; git gc -q --prune=now",
    ],
)
def test_whatever_a_command_makes_of_its_repository_the_users_stays_and_ours_goes_on(
    checkout: Path, tmp_path: Path, script: str
) -> None:
    found = given(checkout)
    before = users_own(checkout)
    as_command(found, script)
    as_command(found, "chmod 700 .git docs 2>/dev/null")
    with contextlib.suppress(InterlockError):  # what it broke may be said; what is looked at is what it reached
        restore(found)
    assert users_own(checkout) == before
    kept = archive(found, tmp_path / "archive", {})
    assert isinstance(kept, ArchivedWorkstream)
    assert not found.path.exists()
    assert users_own(checkout) == before


def test_objects_under_anothers_name_are_refused(checkout: Path) -> None:
    found = given(checkout)
    first = git(checkout, "rev-parse", "main").strip()
    assert isinstance(apply(found, PATCH, "L-1"), AppliedPatch)
    done = commit(found, "L-1", "m")
    assert isinstance(done, Committed)
    # A child of the first commit, and a false copy of that first commit which claims to follow the patch's.
    script = f"""
      forged=$(printf 'tree %s\\nparent {done.sha}\\nauthor c <c> 0 +0000\\ncommitter c <c> 0 +0000\\n\\nx\\n' \\
        $(git rev-parse HEAD^{{tree}}) | git hash-object -t commit -w --stdin)
      child=$(git commit-tree HEAD^{{tree}} -p {first} -m child)
      mkdir -p .git/objects/{first[:2]}
      cp .git/objects/$(echo $forged | cut -c1-2)/$(echo $forged | cut -c3-) .git/objects/{first[:2]}/{first[2:]}
      echo $child > .git/refs/heads/{found.branch}
    """
    as_command(found, script)
    assert import_commits(found) is not None
    assert git(checkout, "rev-parse", found.branch).strip() == done.sha


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives worktrees to another user")
def test_a_repository_that_the_commands_account_cannot_reach_is_copied_for_it(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    moved = checkout.rename(tmp_path / "closed" / "repo")
    path = tmp_path / "trees" / "w"
    found = open_worktree(
        moved, "main", branch_name("r", "w"), path, isolation=as_commands(Settings(home=tmp_path / "home"))
    )
    assert isinstance(found, Worktree)
    assert as_command(found, "git log --format=%s; git status --porcelain") == "First\n"
    assert isinstance(apply(found, PATCH, "L-1"), AppliedPatch)
    assert isinstance(commit(found, "L-1", "m"), Committed)
    as_command(found, "echo > made; git add -A; git commit -qm mine")
    assert as_command(found, "git log --format=%s; git status --porcelain") == "mine\nm\nFirst\n"
    assert isinstance(merge(found, "m"), Committed)
    assert (moved / "made").exists()
    close(found)


def test_a_link_that_is_swapped_while_git_writes_leads_nowhere(checkout: Path, confined: Isolation) -> None:
    found, other, over = given(checkout, isolation=confined), given(checkout, "other"), threading.Event()
    patch = diff(checkout, {"docs/read me.txt": "Changed\n", "docs/more": "x\n"})
    before = everything(other.path)

    def swap() -> None:
        while not over.is_set():
            with_link = f"mv docs .d 2>/dev/null && ln -s {other.path}/docs docs && rm docs && mv .d docs"
            as_command(found, f"for i in 1 2 3 4 5 6 7 8 9; do {with_link}; done")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for attempt in range(5):
            with contextlib.suppress(GitFault):  # what git looked at is gone: another try
                if isinstance(apply(found, patch, f"L-{attempt}"), AppliedPatch):
                    restore(found)
    finally:
        over.set()
        thread.join()
    assert everything(other.path) == before


def test_a_repository_that_shares_its_objects_with_another_works_in_the_sandbox(checkout: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--shared", str(checkout), "clone")
    found = given(tmp_path / "clone", isolation=as_commands(Settings(home=tmp_path / "home")))
    assert isinstance(apply(found, PATCH, "L-1"), AppliedPatch)
    assert isinstance(commit(found, "L-1", "m"), Committed)
    restore(found)
    assert (found.path / "app.py").read_text().startswith("1\n")


def test_git_goes_through_no_link_out_of_its_worktree(checkout: Path, confined: Isolation) -> None:
    """As the race would have it when it is won: a link stands where git has just seen a folder."""
    outside = given(checkout, "other").path / "docs" / "read me.txt"
    for each, seen in ((Isolation(account()), True), (confined, False)):
        found = given(checkout, f"w{seen}", each)
        with worktree.hold(found) as held:
            as_command(found, f"rm -r docs; ln -s {outside.parent} docs")
            said = held.worktree_git().run("hash-object", "--no-filters", "docs/read me.txt", accept=(0, 128))
        assert (said.status == 0) is seen, said


def test_random_commits_of_a_command_get_the_verdict_of_the_patch_that_does_the_same(checkout: Path) -> None:
    chance = random.Random(10)
    names = ["app.py", "secret/key", "docs/read me.txt", "a", "b/c", "d", "e", ".gitattributes", "conftest.py"]
    policy = STRICT.model_copy(update={"protected_paths": ("conftest.py",)})
    verdicts = set()
    for turn in range(5):
        found = given(checkout, f"w{turn}")
        for _ in range(chance.randint(1, 3)):
            wrong = chance.random() < 0.5
            some = chance.sample(names if wrong else names[3:7] + names[:1], chance.randint(1, 2))
            committed(found, {each: f"{chance.random()}\n" * chance.randint(1, 12) for each in some})
        patch = git(found.path, "diff", "--binary", "--no-renames", "main", "HEAD")
        wanted, got = check(patch, policy), merge(found, "m", policy=policy)
        assert isinstance(got, Committed) == wanted.passed, (str(wanted), got)
        if isinstance(got, Checked):
            assert {each.rule for each in got.reasons} == {each.rule for each in wanted.reasons}
        else:
            git(checkout, "reset", "-q", "--hard", "HEAD~")
        verdicts.add(wanted.passed)
        close(found)
    assert verdicts == {True, False}


@pytest.fixture
def judged(checkout: Path) -> Worktree:
    """A worktree of a repository with a Makefile that fails and a checking script."""
    put(checkout, {"Makefile": "test:\n\tfalse\n", "scripts/check.sh": "exit 1\n", ".github/ci.yml": "on: push\n"})
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "Judges")
    return given(checkout)


GUARD = PatchPolicy(protected_paths=("Makefile", "conftest.py", ".github/"), run_by_gates=("scripts/check.sh",))


def test_a_gate_sees_what_judges_it_as_the_base_branch_has_it(judged: Worktree) -> None:
    mended = {
        "Makefile": "test:\n\ttrue\n",
        "scripts/check.sh": "exit 0\n",
        "conftest.py": "import sys\n",
        "new.py": "",
    }
    committed(judged, mended, "rm -rf .github; ln -s docs .github")
    with protected_paths.of_base(judged, GUARD.protected) as differing:
        assert set(differing) >= {"Makefile", "scripts/check.sh", "conftest.py", ".github"}
        assert (
            as_command(judged, "cat Makefile scripts/check.sh .github/ci.yml") == "test:\n\tfalse\nexit 1\non: push\n"
        )
        assert as_command(judged, "ls conftest.py new.py").count("new.py") == 1
        assert not (judged.path / "conftest.py").exists()
    assert as_command(judged, "git status --porcelain; cat Makefile scripts/check.sh") == "test:\n\ttrue\nexit 0\n"
    assert (judged.path / ".github").is_symlink()


def test_what_a_killed_gate_left_aside_is_put_back_and_two_gates_at_once_do_not_disturb_each_other(
    judged: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(judged, {"Makefile": "test:\n\ttrue\n"})
    with protected_paths.of_base(judged, GUARD.protected):
        with protected_paths.of_base(judged, GUARD.protected) as again:
            assert again == ()
        assert "false" in (judged.path / "Makefile").read_text(), "the other gate still needs it"
    assert "true" in (judged.path / "Makefile").read_text()
    child = os.fork()
    if not child:
        with protected_paths.of_base(judged, GUARD.protected):
            os._exit(0)  # as killed
    os.waitpid(child, 0)
    assert "false" in (judged.path / "Makefile").read_text()
    assert import_commits(judged) is None
    assert "true" in (judged.path / "Makefile").read_text()


def test_a_change_of_what_judges_is_refused_unless_the_plan_allows_it(judged: Worktree) -> None:
    patch = "--- a/scripts/check.sh\n+++ b/scripts/check.sh\n@@ -1 +1 @@\n-exit 1\n+exit 0\n"
    refused = apply(judged, patch, "L-1", policy=GUARD)
    assert isinstance(refused, Checked)
    assert (refused.reasons[0].file, refused.reasons[0].rule) == ("scripts/check.sh", "protected")
    allowed = GUARD.model_copy(update={"protected_changes": "allow"})
    assert isinstance(apply(judged, patch, "L-1", policy=allowed), AppliedPatch)


def test_a_search_for_a_regression_gives_its_gate_no_way_into_the_repository(checkout: Path, tmp_path: Path) -> None:
    found = repository.find(checkout)
    assert isinstance(found, repository.Repository)
    before, head = users_own(checkout), git(checkout, "rev-parse", "main").strip()
    with temporary(found, head, tmp_path / "scratch" / "t", Isolation(account())) as desk:
        inside = Worktree(found, desk.path, "interlock/x", "main", desk.isolation)
        as_command(inside, "git commit -q --allow-empty -m x; git update-ref refs/heads/main HEAD; git tag evil")
    assert users_own(checkout) == before
    assert not (tmp_path / "scratch" / "t").exists()
    assert not own_directory(tmp_path / "scratch" / "t").exists()


def test_deep_and_closed_folders_of_a_command_are_removed_with_its_worktree(checkout: Path) -> None:
    found = opened(checkout)
    deep = "d/" * 1200
    as_command(found, f"mkdir -p {deep}; chmod 000 d/d/d")
    close(found)
    assert not found.path.exists()
    shutil.rmtree(found.path.parent)


@pytest.mark.parametrize("name", ["index", "index.lock", "sharedindex", "HEAD", "config", "info/exclude"])
def test_a_link_in_a_worktrees_repository_leads_our_git_to_no_other_worktree(checkout: Path, name: str) -> None:
    victim, found = given(checkout, "victim"), given(checkout)
    theirs = victim.path / ".git" / name
    as_command(victim, f"mkdir -p .git/info; test -e .git/{name} || echo precious > .git/{name}")
    before = theirs.read_bytes()
    as_command(found, f"mkdir -p .git/info; rm -f .git/{name}; ln -s {theirs} .git/{name}")
    assert isinstance(apply(found, PATCH, "L-1"), AppliedPatch)
    assert isinstance(commit(found, "L-1", "m"), Committed)
    restore(found)
    assert theirs.read_bytes() == before
    assert as_command(victim, "git status --porcelain").replace("?? sharedindex\n", "") == ""


def test_pipes_under_names_that_git_reads_hold_nobody_up(checkout: Path, tmp_path: Path) -> None:
    found = given(checkout)
    pipes = "mkfifo .gitignore .gitattributes docs/.gitignore; rm app.py; mkfifo app.py"
    nested = "mkdir -p sub/.git/objects sub/.git/refs; mkfifo sub/.git/HEAD sub/.git/config"
    as_command(found, f"{pipes}; {nested}; echo x > kept")
    started = time.monotonic()
    restore(found)
    as_command(found, f"{pipes}; {nested}; echo x > kept")
    assert isinstance(apply(found, PATCH, "L-1"), Refusal), "app.py is gone"
    as_command(found, f"{pipes}; {nested}")
    kept = archive(found, tmp_path / "archive", {})
    assert isinstance(kept, ArchivedWorkstream)
    assert "kept" in git(checkout, "ls-tree", "--name-only", kept.sha).split()
    assert time.monotonic() - started < 60


def test_a_snapshot_that_hangs_holds_no_other_workstream_up_and_is_taken_again(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, other = given(checkout), given(checkout, "other")
    as_command(found, "mkfifo .gitignore; echo x > kept")
    monkeypatch.setattr(desk, "FILES_SECONDS", 4.0)
    with monkeypatch.context() as hidden:
        hidden.setattr(files, "remove_pipes", lambda top: None)  # as if it were made again at once
        with ThreadPoolExecutor() as pool:
            hangs = pool.submit(archive, found, tmp_path / "archive", {})
            eventually((own_directory(found.path) / "left" / "index").exists)
            assert isinstance(merge(other, "m", lock_seconds=1.0), Committed)
            with pytest.raises(GitFault, match="longer than"):
                hangs.result()
    assert isinstance(archive(found, tmp_path / "archive", {}), ArchivedWorkstream)


def test_no_depth_of_directories_keeps_a_worktree_from_landing_or_being_archived(
    checkout: Path, tmp_path: Path
) -> None:
    levels = 1_100  # of four bytes each: more than any path has (PATH_MAX), and deeper than Python recurses
    found, again = given(checkout), given(checkout, "again")
    for each in (found, again):
        nest(each.path / ".git" / "hooks", levels)
        nest(each.path, levels)
        (each.path / ".git" / "HEAD").unlink()
    with protected_paths.of_base(found, GUARD.protected) as differing:
        assert differing == ()
    assert isinstance(merge(found, "m"), Committed)
    close(found)
    assert isinstance(archive(again, tmp_path / "archive", {}), ArchivedWorkstream)
    assert not found.path.exists()
    assert not again.path.exists()


def nest(top: Path, levels: int) -> None:
    """Directories in each other, further down than any path reaches."""
    top.mkdir(exist_ok=True)
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("ddd", dir_fd=here)
        below = os.open("ddd", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
