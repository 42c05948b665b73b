"""What can be a name, a reason, words; and that a refusal says what is wrong and what to do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.workflows.errors import BadInput
from interlock.workflows.input import names

HOSTILE = {
    "escape": "a\x1b[2Jb",
    "newline": "a\nb",
    "NUL": "a\x00b",
    "DEL": "a\x7fb",
    "C1": "a\x9b31mb",
    "override": "a\u202eb",
    "isolate": "a\u2066b",
    "right-to-left mark": "a\u200fb",
    "Arabic mark": "a\u061cb",
    "zero width space": "a\u200bb",
    "joiner": "a\u200db",
    "byte order mark": "\ufeffa",
    "line separator": "a\u2028b",
    "soft hyphen": "a\u00adb",
    "tag": "a\U000e0041b",
    "variation": "a\ufe0fb",
    "filler": "a\u3164b",
    "other blank": "a\u00a0b",
    "surrogate": "a\ud800b",
    "blank in front": " a",
    "blank behind": "a ",
    "not composed": "e\u0301",
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_what_hides_or_steers_can_be_no_name(value: str) -> None:
    with pytest.raises(BadInput, match=r"^by (holds U\+[0-9A-F]{4,6} |begins or ends with a blank|is not composed)"):
        names.name("by", value)
    assert names.is_name(names.likeness(value))


@pytest.mark.parametrize("value", ["", "x" * 101])
def test_a_name_has_1_to_100_characters(value: str) -> None:
    with pytest.raises(BadInput, match="by must be 1 to 100 characters"):
        names.name("by", value)


@pytest.mark.parametrize(
    "value", ["ann", "agent-7", "night 7/api:fix^1~2", "Zoë", "日本 語", "🦊", "a'b\"$(c)`;[/bold]", "--by"]
)
def test_what_can_be_seen_can_be_a_name(value: str) -> None:
    assert names.name("by", value) == value == names.likeness(value)


def test_an_entity_id_is_no_uuid() -> None:
    with pytest.raises(BadInput, match="entity id 0198C5A0-0000-7000-8000-00000000000a is a UUID"):
        names.entity_id("0198C5A0-0000-7000-8000-00000000000a")
    for other in ("0198c5a0000070008000000000000000", "0198c5a0-0000-7000-8000-00000000000a~1", "S-1"):
        assert names.entity_id(other) == other


def test_a_refusal_shows_the_character_and_quotes_what_it_is_in_visibly() -> None:
    with pytest.raises(BadInput) as refused:
        names.name("entity id", "S-\u200b1")
    assert "holds U+200B (ZERO WIDTH SPACE) as character 3 of 'S-\\u200b1'" in str(refused.value)


def test_a_reason_is_one_line_that_may_join_letters() -> None:
    assert names.reason("reason", "⚠️ می‌خواهم 100 %") == "⚠️ می‌خواهم 100 %"
    for value in ("a\nb", "a\u202eb", "a\U000e0041", " a", "\u3000"):
        with pytest.raises(BadInput):
            names.reason("reason", value)


def test_words_may_have_several_lines() -> None:
    assert names.words("description", "a\n\tb\n") == "a\n\tb\n"
    for value in (" \n", "a\rb", "a\x1b"):
        with pytest.raises(BadInput):
            names.words("description", value)


@given(st.text(max_size=20))
def test_a_likeness_is_a_name_and_of_a_name_itself(value: str) -> None:
    like = names.likeness(value)
    assert names.is_name(like)
    assert like == value or not names.is_name(value)
