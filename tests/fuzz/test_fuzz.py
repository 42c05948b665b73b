"""No input stops anything: every door, with what once crashed it, its corpus, and what Hypothesis makes up."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.fuzz import corpus
from tests.fuzz.door import SEPARATOR, Door, Ground, Target, joined, knock, parts
from tests.fuzz.doors.backups import BACKUP
from tests.fuzz.doors.logs import events
from tests.fuzz.doors.manifests import EXPORT, PROCESSES
from tests.fuzz.doors.plans import EVERYTHING
from tests.fuzz.doors.reports import SIGNED, STATEMENT
from tests.fuzz.ground import NOWHERE
from tests.fuzz.registry import DOORS
from tests.fuzz.shapes import written
from tests.hostile import texts

DOCUMENT = Path(__file__).parents[2] / "docs" / "fuzzing.md"
EVERY = [
    pytest.param(each, id=each.name, marks=[pytest.mark.integration] if each.on_database else [])
    for each in DOORS.values()
]
MOST_KEPT = 300_000  # bytes of all corpora


@pytest.fixture
def target(door: Door, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Target]:
    """The door, opened."""
    inside = tmp_path / "ground"
    inside.mkdir()
    if door.on_database:
        yield door.opened(Ground(inside, request.getfixturevalue("runtime")))
        return
    runtime = Runtime(Settings(home=tmp_path / "home", **NOWHERE))
    yield door.opened(Ground(inside, runtime))
    runtime.close()


@pytest.mark.parametrize(
    ("door", "promise"),
    [
        pytest.param(door.values[0], promise, id=f"{door.id}-{promise}", marks=door.marks)
        for door in EVERY
        for promise in corpus.crashes(door.values[0].name)
    ],
)
def test_what_once_crashed_does_no_more(door: Door, promise: str, target: Target) -> None:
    knock(target, corpus.crashes(door.name)[promise])


@pytest.mark.parametrize("door", EVERY)
def test_each_input_that_reached_new_code_ends_well(door: Door, target: Target) -> None:
    for data in [*door.seeds, *corpus.kept(door.name)]:
        knock(target, data)


@pytest.mark.parametrize("door", EVERY)
def test_whatever_comes_in_ends_well(door: Door, target: Target) -> None:
    @settings(max_examples=door.examples, derandomize=True)
    @given(door.inputs)
    def try_it(data: bytes) -> None:
        knock(target, data)

    try_it()


FILES = {  # door -> a sound file, and what begins it there
    "plans": (EVERYTHING, b""),
    "logs": (events()[0], b""),
    "exports": (EXPORT, b""),
    "reports": (STATEMENT, SIGNED),
    "backups": (BACKUP, b""),
    "homes": (PROCESSES, b"p"),
}


@pytest.mark.parametrize("door", [each for each in EVERY if each.id in FILES])
def test_a_file_with_a_hostile_value_in_any_place_ends_well(door: Door, target: Target) -> None:
    sound, begins = FILES[door.name]
    wrong = {}
    for where, data in texts(sound):
        try:
            knock(target, begins + data)
        except BaseException as error:
            wrong[where] = f"{type(error).__name__}: {error}"[:200]
    assert wrong == {}
    knock(target, begins + written(sound))


@given(st.lists(st.binary(max_size=50).map(lambda text: text.replace(SEPARATOR, b"")), max_size=4))
def test_an_input_of_several_texts_is_put_together_and_taken_apart(texts: list[bytes]) -> None:
    assert parts(joined(*texts), len(texts)) == [each.decode(errors="surrogateescape") for each in texts]


def test_the_corpus_stays_small() -> None:
    assert sum(each.stat().st_size for each in (corpus.HERE / "corpus").iterdir()) <= MOST_KEPT
    assert {each.stem for each in (corpus.HERE / "corpus").iterdir()} <= set(DOORS)
    assert {each.stem for each in (corpus.HERE / "crashes").iterdir()} <= set(DOORS)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_each_door_and_what_it_promises_is_documented(door: Door) -> None:
    assert f"| `{door.name}` | {door.promise} |" in DOCUMENT.read_text()
