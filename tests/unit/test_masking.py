"""A known secret is in nothing that is kept of a command's output, wherever that is cut."""

import base64
import json
from collections.abc import Iterable
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.workers.execution.output import LEAST_PIECE, Capture, Masking

SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="*\0"), min_size=4, max_size=40).filter(
    lambda text: len(text.encode()) >= 4
)
NOISE = st.text(max_size=30).map(str.encode)


def masked(secrets: Iterable[str], pieces: Iterable[bytes]) -> bytes:
    masking = Masking(tuple(secrets))
    return b"".join(masking.take(each) for each in pieces) + masking.rest()


def cut(text: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@given(st.lists(SECRETS, min_size=1, max_size=3), st.lists(NOISE, max_size=4), st.lists(st.integers(0, 500)), st.data())
def test_no_secret_is_left_wherever_the_output_is_cut_into_pieces(
    secrets: list[str], noise: list[bytes], places: list[int], data: st.DataObject
) -> None:
    parts = data.draw(st.permutations([*noise, *(each.encode() for each in secrets)]))
    text = b"".join(parts)
    shown = masked(secrets, cut(text, places))
    assert shown == masked(secrets, [text])
    assert not any(each.encode() in shown for each in secrets)


@given(SECRETS, st.integers(2, 60), st.integers(0, 80), st.integers(0, 80))
def test_no_piece_of_a_secret_is_left_where_what_is_kept_is_cut_off(
    secret: str, limit: int, before: int, after: int
) -> None:
    """Masked before it is cut: of what comes out every byte is noise, a mask or the line about the gap."""
    capture = Capture(limit, (secret,))
    for each in cut(b"." * before + secret.encode() + b"." * after, range(0, 500, 3)):
        capture.take(each)
    capture_text = capture.text()
    kept = [line for line in capture_text.splitlines() if "bytes left out" not in line]
    assert set("".join(kept)) <= set(".*")


@pytest.mark.parametrize(
    "write",
    [
        lambda secret: secret,
        lambda secret: base64.b64encode(secret).rstrip(b"="),
        base64.urlsafe_b64encode,
        lambda secret: quote(secret, safe="").encode(),
        lambda secret: quote(secret, safe="").lower().encode() if secret.islower() else quote(secret).encode(),
        lambda secret: secret.hex().encode(),
        lambda secret: json.dumps(secret.decode()).encode(),
    ],
)
@pytest.mark.parametrize("secret", ["s3cr3t-value", 'a"b\\c/d e+f?g', "pässword-ü€", "two lines\nof a longer key"])
def test_what_programs_commonly_make_of_a_secret_is_masked(write: object, secret: str) -> None:
    assert callable(write)
    written = bytes(write(secret.encode()))
    shown = masked([secret], cut(b"<" + written + b">", range(50)))
    assert shown.strip(b'<>"=') == b"***"


@given(st.text(st.characters(codec="utf-8"), min_size=12, max_size=40), st.binary(max_size=5), st.binary(max_size=5))
def test_within_longer_base64_only_what_others_bytes_decide_is_left(secret: str, before: bytes, after: bytes) -> None:
    shown = masked([secret], [base64.b64encode(before + secret.encode() + after)])
    own = base64.b64encode(secret.encode())
    assert b"***" in shown
    assert not any(own[place : place + LEAST_PIECE] in shown for place in range(2, len(own) - LEAST_PIECE - 4))


def test_output_without_secrets_is_not_touched_and_not_late() -> None:
    masking = Masking()
    assert masking.take(b"\0whatever\xff") == b"\0whatever\xff"
    assert masking.rest() == b""


def test_what_is_held_back_is_never_longer_than_the_longest_form_of_a_secret() -> None:
    masking = Masking(("aaaa",))  # overlaps with itself for as long as it likes
    shown = b"".join(masking.take(b"a" * 1000) for _ in range(100))
    assert (shown + masking.rest(), len(masking._held)) == (b"***", 0)
