"""A machine that is being written: each mistake is told with its file, its line and what to do about it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.workers.definitions import file, scaffold
from interlock.workflows import effects
from interlock.workflows.errors import BadInput, InvalidDefinition, UnknownWorkflow
from interlock.workflows.versioning.export import mermaid
from interlock.workflows.versioning.validate import check

ROOT = Path(__file__).parents[2]
START = 'T("start", "ready", "working", when=(planned,), effects=(Effect("rollout_work", "succeed", "fail"),)),'
MACHINE = "ROLLOUT = Definition("
# Mistake -> (what is written, what is written instead, the line that is told, what is said).
MISTAKES: dict[str, tuple[str, str, str, str]] = {
    "unknown state": (
        '"ready", "failed"),',
        '"ready", "faild"),',
        'T("cancel"',
        "'cancel' names the unknown state 'faild'; did you mean 'failed'?",
    ),
    "unreachable state": (
        '"failed"),\n    initial',
        '"failed", "lost"),\n    initial',
        "states=(",
        "state 'lost' cannot be reached: add a transition that leads to it, or remove it",
    ),
    "dead end": (
        'frozenset({"done", "failed"})',
        'frozenset({"done"})',
        "states=(",
        "state 'failed' is a dead end but not terminal: add a transition out of it, or list it in terminal",
    ),
    "missing effect": (
        '@effect("rollout_work", ',
        '@effect("rollout_wrk", ',
        START,
        "the effect 'rollout_work' is none that is known here; did you mean 'rollout_wrk'? To have one of your ",
    ),
    "misspelt authority": (
        '"done", by="effect"),',
        '"done", by="efect"),',
        'T("succeed", "working", "done"',
        "which is none of anyone, holder, effect, machinery, decider, operator; did you mean 'effect'?",
    ),
    "missing outcome": (
        '        T("succeed", "working", "done", by="effect"),\n',
        "",
        START,
        "effect 'rollout_work' of 'start' reports 'succeed', illegal in 'working': add T('succeed', 'working', …",
    ),
    "an outcome that anyone may tell": (
        '"done", by="effect"),',
        '"done"),',
        'T("succeed", "working", "done")',
        'which anyone may fire: close it with by="effect"',
    ),
    "duplicate trigger": (
        '        T("cancel", "ready", "failed"),',
        '        T("cancel", "ready", "failed"), T("cancel", "ready", "done"),',
        'T("cancel", "ready", "failed")',
        "an unguarded one hides those after it: guard it (when=…), or put it last",
    ),
    "missing deadline trigger": (
        'Deadline(3600, "expire")',
        'Deadline(3600, "expiry")',
        "Deadline(3600",
        "the deadline of 'working' fires 'expiry', which is illegal there: add T('expiry', 'working', …",
    ),
    "deadline of no state": ('{"working": Dead', '{"wroking": Dead', "deadlines=", "did you mean 'working'?"),
    "an argument of no definition": (
        "    summary=",
        "    sumary=",
        "sumary=",
        "Definition has no argument 'sumary'; did you mean 'summary'?",
    ),
    "an argument of no transition": (
        'T("cancel", "ready", "failed")',
        'T(\n"cancel", "ready", "failed",\nwhem=())',
        "whem=",
        "T has no argument 'whem'; did you mean 'when'?",
    ),
    "a transition without an end": ('T("cancel", "ready", "failed")', 'T("cancel", "ready")', 'T("cancel"', "'dest'"),
    "wrong guard signature": (
        "def _is_planned(case: Case[Context, Start])",
        "def _is_planned()",
        "def _is_planned()",
        "holds of the guard 'planned' is called with one argument, a Case, but takes () -> bool",
    ),
    "async guard": ("def _is_planned", "async def _is_planned", "async def", "guards are plain functions"),
    "no guard": ('Guard("planned", _is_planned', 'Guard("planned", True', MACHINE, "but is no function: True"),
    "guard without a comma": (
        "when=(planned,)",
        "when=(planned)",
        'T("start"',
        "when of 'start' must be a tuple of Guard, not Guard(name='planned'",
    ),
    "states without a comma": (
        'terminal=frozenset({"done", "failed"})',
        'terminal=("failed")',
        "terminal=",
        "of text, not",
    ),
    "wrong model": (
        ', extra="forbid"):\n    """What who',
        '):\n    """What who',
        "data=",
        "Start would ignore misspelt",
    ),
    "model of no trigger": ('data={"start"', 'data={"begin"', "data=", "'begin', which is none of its triggers"),
    "taken type": (
        'WORKFLOWS = {("rollout", "1.0.0"): ROLLOUT}',
        'import dataclasses\nWORKFLOWS = {("story", "1.0.0"): dataclasses.replace(ROLLOUT, type="story")}',
        "",
        "story 1.0.0 is defined twice; raise one's version",
    ),
    "syntax error": (
        'type="rollout",',
        'type="rollout"',
        'type="rollout"',
        "SyntaxError: invalid syntax. Perhaps you ",
    ),
    "unknown name": (
        'planned = Guard("',
        'planned = Gard("',
        "planned = Gard",
        "name 'Gard' is not defined; did you mean 'Guard'?",
    ),
    "unknown argument": (
        'by="machinery", ',
        'form="machinery", ',
        'T("expire"',
        "T has no argument 'form'; it has trigger, sources, dest,",
    ),
    "missing argument": ('    initial="ready",\n', "", MACHINE, "Definition needs the argument 'initial'"),
    "unknown module": (
        "from interlock import",
        "import nowhere_to_find\nfrom interlock import",
        "import now",
        "install it",
    ),
    "an exit": ("WORKFLOWS = {", "raise SystemExit(1)\nWORKFLOWS = {", "raise SystemExit", "SystemExit: 1"),
    "wrong effect": ("retries=3", "retries=-3", "@effect(", "retries must be a whole number, at least 0"),
    "a limit key that is no field": (
        "retries=3, ",
        'retries=3, key="subjct", ',
        "@effect(",
        "is no field of Context, the context of rollout 1.0.0; did you mean 'subject'?",
    ),
    "no list of moves": (
        "    transitions=(\n",
        '    transitions="moves", links=(\n',
        "transitions=",
        "must be a tuple of T(…)",
    ),
    "no WORKFLOWS": ("WORKFLOWS = {", "WORKFLOW = {", "", 'end it with WORKFLOWS = {("rollout", "1.0.0"): ROLLOUT}'),
    "another's key": (
        'WORKFLOWS = {("rollout", "1.0.0")',
        'WORKFLOWS = {("rollout", "1.1.0")',
        'type="rollout"',
        """WORKFLOWS has ('rollout', '1.1.0'): write ("rollout", "1.0.0"): ROLLOUT""",
    ),
    "a key without a version": (
        'WORKFLOWS = {("rollout", "1.0.0")',
        'WORKFLOWS = {"rollout"',
        'type="rollout"',
        """WORKFLOWS has 'rollout': write ("rollout", "1.0.0"): ROLLOUT""",
    ),
}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test declares effects of its own."""
    monkeypatch.setattr(effects, "_DECLARED", {})


@pytest.fixture
def draft(tmp_path: Path) -> Callable[..., Path]:
    """Writes the machine that `interlock definitions new` writes, with a change."""

    def write(old: str = "", new: str = "") -> Path:
        path, _ = scaffold.write("rollout", tmp_path)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1) if old else text)
        return path

    return write


def test_what_is_written_at_first_is_right(draft: Callable[..., Path]) -> None:
    found = file.read(draft())
    assert ([f"{each.type} {each.version}" for each in found.definitions], found.faults) == (["rollout 1.0.0"], ())
    assert found.warnings == ()
    assert "working --> failed: expire by machinery" in mermaid(found.one())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_file_line_and_cure(draft: Callable[..., Path], mistake: str) -> None:
    old, new, line, says = MISTAKES[mistake]
    path = draft(old, new)
    told = {each.place: each.message for each in file.read(path).faults if says in each.message}
    assert told, file.read(path).faults
    assert all(place.rpartition(":")[0] == str(path) for place in told), told
    lines = path.read_text().splitlines()
    assert any(line in lines[int(place.rpartition(":")[2]) - 1] for place in told), told


@pytest.mark.parametrize("mistake", ["missing effect", "misspelt authority", "a limit key that is no field"])
def test_a_misspelt_name_is_one_fault(draft: Callable[..., Path], mistake: str) -> None:
    old, new, _, _ = MISTAKES[mistake]
    assert len(file.read(draft(old, new)).faults) == 1


def test_a_file_is_drawn_while_it_is_being_written(draft: Callable[..., Path]) -> None:
    found = file.read(draft('"ready", "failed"),', '"ready", "faild"),'))
    assert found.faults
    assert "ready --> faild: cancel" in mermaid(found.one())


def test_a_file_without_workflows_yet_is_drawn_too(draft: Callable[..., Path]) -> None:
    assert "ready --> working" in mermaid(file.read(draft("WORKFLOWS = {", "SOON = {")).one())


def test_what_cannot_be_drawn_says_why(draft: Callable[..., Path]) -> None:
    with pytest.raises(InvalidDefinition, match="when of 'start' must be a tuple of Guard"):
        file.read(draft("when=(planned,)", "when=planned")).one()


def test_of_several_types_one_is_named(draft: Callable[..., Path]) -> None:
    second = "WORKFLOWS |= {(each.type, each.version): each for each in OTHERS}\n"
    path = draft("import BaseModel, Field\n", "import BaseModel, Field\nfrom dataclasses import replace\n")
    others = "OTHERS = [replace(ROLLOUT, type='other'), replace(ROLLOUT, version='1.1.0')]\n"
    path.write_text(path.read_text() + others + second)
    found = file.read(path)
    assert found.faults == ()
    with pytest.raises(UnknownWorkflow, match=r"with --type: rollout 1.0.0, other 1.0.0, rollout 1.1.0"):
        found.one()
    assert (found.one("rollout").version, found.one("rollout", "1.0.0").version) == ("1.1.0", "1.0.0")


def test_a_folder_s_modules_can_be_imported_and_nothing_stays_behind(
    draft: Callable[..., Path], tmp_path: Path
) -> None:
    import sys

    (tmp_path / "beside_rollout.py").write_text("SECONDS = 60\n")
    path = draft("from interlock import", "from beside_rollout import SECONDS\nfrom interlock import")
    before = [*sys.path]
    assert file.read(path).faults == ()
    sys.modules.pop("beside_rollout")
    assert sys.path == before
    assert "rollout" not in sys.modules


def test_a_queue_that_no_node_consumes_is_a_warning_of_a_draft(draft: Callable[..., Path]) -> None:
    path = draft('"rollout_work", retries=3', '"rollout_work", queue="slow", retries=3')
    (warning,) = file.read(path).warnings
    assert "add it to INTERLOCK_EFFECT_QUEUES" in warning
    assert file.read(path, ["slow"]).warnings == ()


def test_what_is_no_file_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^story is no file: give a Python file, like deploy\.py$"):
        file.read(Path("story"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Deploy", "lower-case letters"),
        ("1st", "lower-case letters"),
        ("a/b", "lower-case letters"),
        ("x" * 51, "lower-case letters"),
        ("class", "no word of Python's own"),
        ("match", "no word of Python's own"),
        ("story", "Interlock has a type 'story' of its own"),
        ("json", "Python finds a module 'json' already"),
        ("pydantic", "Python finds a module 'pydantic' already"),
    ],
)
def test_a_name_that_cannot_be_one_is_refused_and_nothing_is_written(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        scaffold.write(name, tmp_path)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("there", ["rollout.py", "test_rollout.py"])
def test_no_file_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).symlink_to("nowhere")
    with pytest.raises(BadInput, match=rf"{there} exists already, and is not overwritten"):
        scaffold.write("rollout", tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [there]


def test_the_listing_in_the_documents_is_sound(tmp_path: Path) -> None:
    """docs/definitions.md."""
    text = (ROOT / "docs" / "definitions.md").read_text(encoding="utf-8")
    (tmp_path / "shipments.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    found = file.read(tmp_path / "shipments.py")
    assert found.faults == ()
    assert check(found.one()) == []
