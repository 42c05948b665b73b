"""Each promise of docs/leads-on.md has a test that shows it, and each mark names a promise."""

from functools import cache
from pathlib import Path

import pytest

from docs.promises import PROMISES, marked


@cache
def every_mark() -> list[tuple[str, str]]:
    """Read once, by who runs these tests: each process of a parallel run imports this module."""
    return [*marked()]


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_is_shown_by_a_test(promise: str) -> None:
    assert [test for known, test in every_mark() if known == promise]


def test_each_mark_names_a_promise_and_is_on_a_test() -> None:
    assert {promise for promise, _ in every_mark()} <= {*PROMISES}
    assert [test for _, test in every_mark() if not test.partition("::")[2].startswith("test_")] == []


def test_a_mark_is_found_wherever_it_is_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "tests" / "deep" / "test_it.py").write_text(
        "@mark.parametrize('x', [1])\n@pytest.mark.promise('O1', 'O2')\ndef test_a(): ...\ndef test_b(): ...\n"
    )
    assert [*marked(tmp_path / "tests")] == [(each, "tests/deep/test_it.py::test_a") for each in ("O1", "O2")]
