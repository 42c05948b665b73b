"""What a name may hold is said once: Python and PostgreSQL refuse the same, whatever the characters."""

import unicodedata
from typing import Any

import psycopg
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from interlock.workflows.input import names

Dba = "psycopg.Connection[Any]"
LIMIT = 10_000
EDGES = [
    chr(point)
    for first, last in (*names.STEERING, *names.HIDDEN, *names.JOINING, *names.BLANK)
    for point in {first - 1, first, (first + last) // 2, last, last + 1}
    if point > 0
]
# Of characters newer than Python's Unicode, PostgreSQL may know better how they compose.
KNOWN = st.characters(exclude_categories=("Cs", "Cn"), exclude_characters="\0")
TEXTS = st.text(st.one_of(st.sampled_from(EDGES), st.sampled_from("ab é\u0301\u1100\u1161\n\t"), KNOWN), max_size=8)


@hypothesis_settings(max_examples=18)
@given(texts=st.lists(TEXTS, min_size=200, max_size=200))
def test_python_and_postgresql_take_the_same_for_a_name_a_reason_and_words(
    dba: "psycopg.Connection[Any]", texts: list[str]
) -> None:
    texts = [each for each in texts if not any(unicodedata.category(letter) == "Cs" for letter in each)]
    found = dba.execute(
        "SELECT is_name(t), is_reason(t), is_words(t)"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS u (t, nth) ORDER BY nth",
        (texts,),
    ).fetchall()
    for text, said in zip(texts, found, strict=True):
        rules = (names.IN_NAMES, names.IN_REASONS, names.IN_WORDS)
        assert said == tuple(names._wrong(text, LIMIT, rule) is None for rule in rules), ascii(text)


def test_every_single_character_is_judged_alike(dba: "psycopg.Connection[Any]") -> None:
    points = [point for point in range(1, 0x110000) if not 0xD800 <= point <= 0xDFFF]
    refused = dba.execute(
        "SELECT array_agg(p) FROM unnest(%s::int[]) AS p WHERE NOT is_name('a' || chr(p) || 'b')", (points,)
    ).fetchone()
    assert refused
    ours = {
        point
        for point in points
        if names.IN_NAMES.search(chr(point)) or not unicodedata.is_normalized("NFC", f"a{chr(point)}b")
    }
    assert {point for point in ours ^ set(refused[0]) if unicodedata.category(chr(point)) != "Cn"} == set()
