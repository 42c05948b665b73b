"""Read server-sent events as a browser does (HTML Living Standard, section 9.2.6)."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Block(NamedTuple):
    """A block of a stream: the id that a client would come again with, and its event, if it has one."""

    id: str
    event: dict[str, Any] | None


def blocks(lines: Iterable[str], last_id: str = "") -> Iterator[Block]:
    """The blocks of a stream's lines; one that is cut off is none."""
    data: list[str] = []
    for line in lines:
        name, _, value = line.partition(":")
        match name, value.removeprefix(" "):
            case "id", text:
                last_id = text
            case "data", text:
                data.append(text)
            case "", _ if not line:
                yield Block(last_id, json.loads("\n".join(data)) if data else None)
                data = []
