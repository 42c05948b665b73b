"""What a patch may be and do: format, scope and constraints, judged by its text."""

import pytest
from pydantic import ValidationError

from interlock.workers.git.diff_summary import FileChange
from interlock.workers.git.forbidden_paths import leaves
from interlock.workers.git.policy import Checked, PatchPolicy, PhasePaths, check
from interlock.workers.git.ref_names import branch_name


def edit(path: str, line: str = "b") -> str:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+{line}\n"


def new(path: str, line: str, mode: str = "100644") -> str:
    return f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{line}\n"


def bare(text: str) -> str:
    """A link's content has no newline at its end."""
    return f"{text}\\ No newline at end of file\n"


RENAME = "diff --git a/src/a b/lib/a\nsimilarity index 100%\nrename from src/a\nrename to lib/a\n"
QUOTED = '"a/qu\\303\\251\\"t" "b/qu\\303\\251\\"t"'


def only(checked: Checked) -> FileChange:
    assert checked.passed, str(checked)
    (change,) = checked.changes
    return change


def test_an_edit_passes_and_tells_its_lines() -> None:
    change = only(check(edit("src/a.py")))
    assert (change.paths, change.added, change.deleted) == (("src/a.py",), 1, 1)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("--- a/plain\n+++ b/plain\n@@ -1 +1 @@\n-a\n+b\n", ("plain",)),
        (RENAME, ("src/a", "lib/a")),
        (f"diff --git {QUOTED}\nold mode 100644\nnew mode 100755\n", ('qué"t',)),
        ("diff --git a/sp ace b/sp ace\ndeleted file mode 100644\n", ("sp ace",)),
        (edit("crlf", "b\r"), ("crlf",)),
        (edit("cut") + "\\ No newline at end of file\n", ("cut",)),
        ("--- a/list\n+++ b/list\n@@ -1 +1 @@\n--- a/x\n+++ b/x\n", ("list",)),
        (f"From 12 Mon\nSubject: x\n\n---\n a | 2 +-\n\n{edit('mailed')}-- \n2.39.5\n\n", ("mailed",)),
    ],
)
def test_both_sides_of_every_kind_of_change_are_read(text: str, paths: tuple[str, ...]) -> None:
    assert only(check(text)).paths == paths


@pytest.mark.parametrize("text", ["", " \n", "hello\n", edit("a")[:-3], "@@ -1 +1 @@\n-a\n+b\n", edit("a", "\0")])
def test_what_is_no_diff_has_no_verdict_but_the_format(text: str) -> None:
    checked = check(text)
    assert (checked.format, checked.scope, checked.constraints) == (False, False, False)
    assert checked.reasons


def test_a_huge_patch_is_not_even_read() -> None:
    (reason,) = check(edit("a", "x" * 2_000_000)).reasons
    assert reason.rule == "size"


def test_binary_needs_permission_and_its_content() -> None:
    hollow = "diff --git a/i.png b/i.png\nindex 1111111..2222222 100644\nBinary files a/i.png and b/i.png differ\n"
    assert not check(hollow).format
    allowing = check(hollow, PatchPolicy(allow_binary=True))
    assert not allowing.format
    assert "without its content" in str(allowing)


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        "sub/.git/hooks/x",
        ".GIT/config",
        ".git./x",
        "g/.g\u200cit/x",
        "GIT~1/x",
        ".interlock/x",
        ".git::$D/x",
    ],
)
def test_gits_own_directory_is_out_of_scope_in_every_spelling(path: str) -> None:
    checked = check(edit(path))
    assert (checked.format, checked.scope, checked.constraints) == (True, False, False)
    assert {reason.file for reason in checked.reasons} == {path}
    assert f"Attempted to modify {path}" in str(checked)


def test_a_rename_is_in_scope_only_with_both_its_sides() -> None:
    assert check(RENAME, PatchPolicy(allowed_paths=("src/**", "lib/**"))).scope
    for allowed, blamed in (("src/**", "lib/a"), ("lib/**", "src/a")):
        (reason,) = check(RENAME, PatchPolicy(allowed_paths=(allowed,))).reasons
        assert (reason.file, reason.rule) == (blamed, "allowed_paths")
    assert not check(RENAME, PatchPolicy(forbidden_paths=("src",))).scope


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("src/a.py", None),
        ("docs/a.md", "may not be changed in phase release, which allows src/**, lib/** (phase)"),
        ("src/old/a.py", "is forbidden in phase release (phase)"),
        ("src/secret", "is under secret (forbidden_paths)"),
        ("lib/a.py", "is outside of src/**, docs/** (allowed_paths)"),
    ],
)
def test_a_phase_narrows_what_its_plan_allows_and_never_widens_it(path: str, reason: str | None) -> None:
    """PHASE-3: allowed by both, forbidden by neither."""
    phase = PhasePaths(name="release", allowed_paths=("src/**", "lib/**"), forbidden_paths=("src/old/",))
    policy = PatchPolicy(allowed_paths=("src/**", "docs/**"), forbidden_paths=("secret",), phase=phase)
    checked = check(edit(path), policy)
    assert [str(each) for each in checked.reasons] == ([f"{path}: {reason}"] if reason else [])
    assert checked.scope is (reason is None)


@pytest.mark.parametrize(
    ("glob", "path", "inside"),
    [
        ("src/**", "src/a/b.py", True),
        ("src/**", "lib/src/b.py", False),
        ("src/", "lib/src/b.py", True),
        ("*.py", "deep/down/x.py", True),
        ("/setup.py", "sub/setup.py", False),
        ("SRC/**", "src/a", False),
    ],
)
def test_globs_are_read_as_gitignore_reads_them(glob: str, path: str, inside: bool) -> None:
    assert check(edit(path), PatchPolicy(allowed_paths=(glob,))).scope is inside


@pytest.mark.parametrize("glob", ["!src", "#src", " ", ""])
def test_a_policy_has_no_glob_that_would_not_be_one(glob: str) -> None:
    with pytest.raises(ValidationError):
        PatchPolicy(forbidden_paths=(glob,))


@pytest.mark.parametrize("path", ["../x", "a/../../x", "a\\b"])
def test_no_path_leaves_the_tree(path: str) -> None:
    checked = check(edit(path))
    assert not checked.constraints
    assert "path" in {reason.rule for reason in checked.reasons}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (bare(new("l", "../../etc/passwd", "120000")), "symlink"),
        (bare(new("a/l", "/etc/passwd", "120000")), "symlink"),
        (bare(new("a/b/l", "x/../../..", "120000")), "symlink"),
        (bare(new("l", ".git/config", "120000")), "symlink"),
        (bare(new("d", "sub", "120000")) + new("d/x", "y"), "symlink"),
        (bare(new("sub", f"Subproject commit {'1' * 40}", "160000")), "submodule"),
        (new(".gitmodules", "[submodule]"), "submodule"),
        (new("a/.gitattributes", "*.py filter=evil"), "attributes"),
        (
            "diff --git a/x b/.gitattributes\nsimilarity index 100%\nrename from x\nrename to .gitattributes\n",
            "attributes",
        ),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 104755\n", "mode"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 120000\n", "symlink"),
    ],
)
def test_what_could_reach_out_of_the_tree_breaks_a_constraint(text: str, rule: str) -> None:
    checked = check(text)
    assert checked.format, str(checked)
    assert not checked.constraints
    assert rule in {reason.rule for reason in checked.reasons}


def test_harmless_links_and_attributes_pass() -> None:
    assert check(bare(new("a/b/l", "../c.txt", "120000"))).passed
    assert check(new(".gitattributes", "*.png binary")).passed


def test_no_path_goes_through_a_link_the_tree_has() -> None:
    assert check(edit("d/x")).passed
    (reason,) = check(edit("d/x"), links={"d"}).reasons
    assert (reason.file, reason.rule) == ("d/x", "symlink")


def test_a_mode_that_only_git_reads_is_no_way_around() -> None:
    assert not check(bare(new("l", "../../etc", "120000 "))).format


def test_sizes_are_bounded() -> None:
    two = edit("a") + edit("b")
    assert {r.rule for r in check(two, PatchPolicy(max_files=1)).reasons} == {"max_files"}
    assert {r.rule for r in check(two, PatchPolicy(max_changed_lines=3)).reasons} == {"max_changed_lines"}
    assert check(two, PatchPolicy(max_files=2, max_changed_lines=4)).passed


@pytest.mark.parametrize(
    ("link", "target", "out"),
    [("l", "a", False), ("l", "..", True), ("a/l", "..", False), ("a/l", "../..", True), ("a/l", "b/../c", True)],
)
def test_where_a_link_may_point(link: str, target: str, out: bool) -> None:
    assert leaves(link, target) is out


def test_different_names_never_become_one_branch() -> None:
    names = ["a", "A", "a b", "a-b", "a/b", "..", ".lock", "-x", "é", "", "x" * 300, "x" * 301, "@{", "a.lock"]
    made = {branch_name("r", name).casefold() for name in names}
    assert len(made) == len(names)
    assert all(each.isascii() and ".." not in each and not each.endswith(".lock") for each in made)
