"""Escapes untrusted text for a terminal, log or message: invisible and control characters are spelled out."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from datetime import datetime
from functools import cache
from uuid import UUID

from interlock.workflows.input.names import IN_REASONS, IN_WORDS

SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def shown(text: object) -> str:
    """A text in one line, with control and invisible characters written as `\\x1b`, `\\n`, `\\u200b`."""
    return IN_REASONS.sub(_spelled, str(text))


def shown_lines(text: object) -> str:
    """As `shown`, but keeps line ends and tabs: for a diff, or a command's output."""
    return IN_WORDS.sub(_spelled, str(text))


def json_text(value: object, *, default: Callable[[object], object] | None = None, indent: int | None = None) -> str:
    """A value as JSON, unchanged, with invisible and control characters written as JSON escapes."""
    return _spelled_in_json(_encoder(default, indent)(value))


@cache
def _encoder(default: Callable[[object], object] | None, indent: int | None) -> Callable[[object], str]:
    return json.JSONEncoder(default=default, ensure_ascii=False, indent=indent).encode


def json_beginning(value: object, most: int) -> tuple[str, bool]:
    """The first characters of a value as indented JSON, as `json_text` writes it, and whether that is all.

    No more of the value is written than that, however large it is.
    """
    parts, left = list[str](), most
    for part in json.JSONEncoder(default=plain, ensure_ascii=False, indent=2).iterencode(value):
        parts.append(part[:left])
        left -= len(part)
        if left < 0:
            break
    return _spelled_in_json("".join(parts)), left >= 0


def plain(value: object) -> object:
    """What JSON lacks, as JSON: ids and others as text, times in ISO 8601, bytes in hexadecimal, records as objects."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def last_line(text: str | None) -> str:
    """The last line that is not blank."""
    return next((each.strip() for each in reversed((text or "").splitlines()) if each.strip()), "")


def _spelled_in_json(text: str) -> str:
    if text.isascii() and text.isprintable():  # nearly always, and much quicker found out
        return text
    return IN_WORDS.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _spelled(found: re.Match[str]) -> str:
    point = ord(found[0])
    if point > 0xFFFF:
        return f"\\U{point:08x}"
    return SHORT.get(found[0]) or (f"\\u{point:04x}" if point > 0xFF else f"\\x{point:02x}")
