"""Hypothesis's strategies: sound documents with something hostile in them, and bytes with something cut or repeated."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

DEEP = "deep:"  # stands for a value nested so deep that Python's own encoder could not write it
NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.1, -0.0, 1e308, 5e-324, float("inf"), float("nan"))
TEXTS = (
    "",
    " ",
    "\0",
    "\ud800",
    "\udcff",
    "\x1b]0;owned\x07\x1b[31m",
    "\u202e\u2066",
    "[/bold] [link=file:///etc/passwd]",
    "'; touch /tmp/owned; '",
    "../../etc/passwd",
    "%s %(x)s {0} ${HOME}",
    "9" * 5_000,
    "e" * 70_000,
    "1" * 500 + "e" + "9" * 9,
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "1e999999999",
    "\U0001d7d9",
)
DEPTHS = (49, 50, 51, 120, 330, 850, 930, 970, 1_500)
SPLICED = (
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\x1b[2J",
    b"\\u0000",
    b"NaN",
    b"1e999",
    b"[" * 990,
)


def hostile() -> SearchStrategy[Any]:
    """A value that JSON can say and somebody did not expect."""
    deep = st.builds("{}{}:{}".format, st.just(DEEP), st.sampled_from(DEPTHS), st.sampled_from("[{"))
    plain = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(TEXTS) | st.text(max_size=20)
    small = st.lists(plain, max_size=3) | st.dictionaries(
        st.sampled_from(TEXTS) | st.text(max_size=9), plain, max_size=3
    )
    return plain | deep | small | st.integers()


def written(value: Any) -> bytes:
    """As JSON, with what is deep in its place."""
    text = json.dumps(value, ensure_ascii=True)
    for depth in DEPTHS:
        text = text.replace(f'"{DEEP}{depth}:["', "[" * depth + "]" * depth)
        text = text.replace(f'"{DEEP}{depth}:{{"', '{"a":' * depth + "1" + "}" * depth)
    return text.encode()


@st.composite
def tampered(draw: DrawFn, documents: Sequence[Any]) -> Any:
    """One of the documents with up to three of its values replaced, taken out, doubled, or beside one more."""
    document = json.loads(json.dumps(draw(st.sampled_from(documents))))
    for _ in range(draw(st.integers(0, 3))):
        document = _changed(draw, document)
    return document


def _changed(draw: DrawFn, document: Any) -> Any:
    if not isinstance(document, dict | list) or not document or draw(st.integers(0, 9)) == 0:
        return draw(hostile())
    key: Any = draw(st.sampled_from(list(document) if isinstance(document, dict) else range(len(document))))
    if isinstance(document[key], dict | list) and document[key] and draw(st.integers(0, 3)):
        document[key] = _changed(draw, document[key])
        return document
    match draw(st.sampled_from(("replace", "replace", "drop", "add", "double"))):
        case "replace":
            document[key] = draw(hostile())
        case "drop":
            del document[key]
        case "add" if isinstance(document, dict):
            document[draw(st.sampled_from(TEXTS) | st.text(max_size=9))] = draw(hostile())
        case _ if isinstance(document, dict):
            document[f"{key}{key}"] = document[key]
        case _:
            document.insert(key, document[key])
    return document


@st.composite
def spliced(draw: DrawFn, whole: SearchStrategy[bytes]) -> bytes:
    """Bytes with up to three places cut out, repeated, turned over or filled with something that parsers dislike."""
    data = draw(whole)
    for _ in range(draw(st.integers(0, 3))):
        start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        match draw(st.sampled_from(("cut", "repeat", "fill", "bytes"))):
            case "cut":
                data = data[:start] + data[end:]
            case "repeat":
                data = data[:end] + data[start:end] * draw(st.integers(1, 3)) + data[end:]
            case "fill":
                data = data[:start] + draw(st.sampled_from(SPLICED)) + data[start:]
            case _:
                data = data[:start] + draw(st.binary(max_size=8)) + data[end:]
    return data


def documents(*sound: Any) -> SearchStrategy[bytes]:
    """JSON documents like these, tampered with as values and then, some of them, as bytes."""
    whole = tampered(sound).map(written)
    return whole | spliced(whole)


def lines(*sound: Any) -> SearchStrategy[bytes]:
    """Files of JSON lines like these."""
    whole = st.lists(tampered(sound).map(written), max_size=6).map(lambda each: b"\n".join(each) + b"\n")
    return whole | spliced(whole)
