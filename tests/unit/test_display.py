"""What is shown steers no terminal and hides nothing; what is offered runs nothing but what it says."""

import json
import os
import shlex
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from interlock.cli.lib.tables import drawn
from interlock.workflows.input.names import IN_REASONS, IN_WORDS
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.escaping import json_text, shown, shown_lines
from interlock.workflows.output.suggestions import ME, offered, with_setting
from interlock.workflows.output.urls import shown_url, without_users
from tests.unit.test_names import HOSTILE

SECRET = "s3cr3t-Sentinel"


@given(st.text())
def test_what_is_shown_has_nothing_in_it_that_hides_or_steers(text: str) -> None:
    assert not IN_REASONS.search(shown(text))
    assert not IN_WORDS.search(shown_lines(text))
    assert shown_lines(text).count("\n") == text.count("\n")


def test_what_would_steer_is_spelled_out() -> None:
    assert shown("a\x1b[2J\nb\u202e\U000e0041\x9b") == "a\\x1b[2J\\nb\\u202e\\U000e0041\\x9b"
    assert shown("Zoë 日本 ⚠️ [/bold]") == "Zoë 日本 ⚠️ [/bold]"


@given(
    st.recursive(st.text(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
)
def test_json_is_exact_and_hides_nothing(value: object) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert not IN_WORDS.search(text)


def test_one_thing_is_not_spoken_of_as_several() -> None:
    assert [number_of(count, "limit") for count in (0, 1, 2)] == ["0 limits", "1 limit", "2 limits"]
    assert number_of(1_000, "patch", "patches") == "1,000 patches"


WORDS = st.one_of(
    st.sampled_from(
        [*HOSTILE.values(), "-x", "--by", "--", "a b", "$(touch x)", "`id`", "';id;'", '"', "\\", "~", "*", "!", "#"]
    ),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")),
).filter(lambda word: "\0" not in word and "\ud800" not in word)


def said(ref: str, by: str) -> list[str]:
    """The words that the offer of a fire must come to."""
    end = ["--by", by] if not by.startswith("-") else [f"--by={by}"]
    return (
        ["interlock", "fire", *end, "--", ref, "approve"]
        if ref.startswith("-")
        else ["interlock", "fire", ref, "approve", *end]
    )


@given(ref=WORDS, by=WORDS)
def test_an_offer_comes_back_as_exactly_its_words(ref: str, by: str) -> None:
    assert shlex.split(offered("fire", ref, "approve", by=by)) == said(ref, by)


@hypothesis_settings(max_examples=40)
@given(st.lists(st.tuples(WORDS, WORDS), min_size=10, max_size=10))
def test_a_shell_that_an_offer_is_pasted_into_runs_interlock_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    place = tmp_path_factory.mktemp("pasted")
    stub = place / "interlock"
    stub.write_text("#!/bin/sh\nprintf 'interlock\\0'\nfor word; do printf '%s\\0' \"$word\"; done\n")
    stub.chmod(0o755)
    script = "\n".join(offered("fire", ref, "approve", by=by) for ref, by in pairs)
    done = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, check=True, cwd=place, env={"PATH": str(place)}, timeout=30
    )
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for ref, by in pairs for word in said(ref, by)]
    assert done.stderr == b""
    assert list(place.iterdir()) == [stub]


def test_an_offer_says_its_flags_lists_and_the_reader_themselves() -> None:
    assert offered("worker", "shutdown", "a b", now=True, by=None) == "interlock worker shutdown 'a b' --now"
    assert offered("worker", "register", "NAME", can=["x", "-y"]) == "interlock worker register NAME --can x --can=-y"
    assert offered("fire", "S-1", "go", by=ME) == 'interlock fire S-1 go --by "$(id -un)"'
    assert with_setting("INTERLOCK_HOME", Path("/a b"), offered("up")) == "INTERLOCK_HOME='/a b' interlock up"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"postgresql://ann:{SECRET}@db.example:5432/x?password={SECRET}", "postgresql://db.example:5432"),
        (f"redis://:{SECRET}@127.0.0.1:6379/0", "redis://127.0.0.1:6379"),
        (f"jsons://ann:{SECRET}@hooks.example/{SECRET}?+Authorization={SECRET}", "jsons://hooks.example"),
        (f"slack://{SECRET}/{SECRET}/x", "slack://…"),
        (f"mailtos://ann:{SECRET}@mail.example", "mailtos://mail.example"),
        (f"postgresql://ann:{SECRET}/x@db.example/x", "postgresql://…"),
        (SECRET, "(no URL)"),
        (["x"], "(no URL)"),
    ],
)
def test_of_a_url_its_scheme_and_host_are_shown(url: object, says: str) -> None:
    assert shown_url(url) == says


def test_a_text_tells_no_urls_user() -> None:
    text = f"cannot reach redis://:{SECRET}@h:1/0 nor postgresql+psycopg://a:{SECRET}@h/x"
    assert without_users(text) == "cannot reach redis://…@h:1/0 nor postgresql+psycopg://…@h/x"


CELLS = st.lists(st.text(st.characters(categories=("L", "N", "P")), max_size=30), max_size=4).map(" ".join)


@example(rows=[(" entity-17", "", "")], width=29)  # a blank before it needs room, too
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), width=st.integers(20, 150))
def test_a_table_fits_its_terminal_and_breaks_no_name(rows: list[tuple[str, str, str]], width: int) -> None:
    console = Console(width=width, file=StringIO(), color_system=None)
    names = [Text(name) for name in ("entity id", "state", "error")]
    made = drawn(Text("things"), names, [[Text(cell) for cell in row] for row in rows], width)
    console.print(made, soft_wrap=isinstance(made, Group))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    if isinstance(made, Table):
        assert all(Text(line).cell_len <= width for line in written.splitlines())
    for cell in (cell for row in rows for cell in row if len(cell.split()) == 1):
        assert cell.strip() in written
