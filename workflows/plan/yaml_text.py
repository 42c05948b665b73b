"""Parse YAML or JSON text into values with positions.

PyYAML's C parser gives events with positions, more than a million a second; ruamel.yaml gives positions only with its
pure Python parser (1,000 tasks: 0.87 s there, 0.06 s here). Only the events are PyYAML's; `yaml_nodes` and
`yaml_scalars` interpret them.
"""

import re
from dataclasses import dataclass

import yaml

from interlock.workflows.plan.positions import Source, packed
from interlock.workflows.plan.problems import PlanProblem, UnlocatedProblem
from interlock.workflows.plan.yaml_nodes import Tree, UnreadableRest, at

MAX_BYTES = 16 * 1024**2
# JSON writes an emoji as two escapes, of which YAML refuses each. An even number of backslashes before them are escaped
# backslashes.
PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The values of a text, if there are any, and the problems of its syntax."""

    source: Source | None
    problems: tuple[PlanProblem, ...]


def parse(text: str | bytes) -> Parsed:
    """Parse one document of YAML 1.2 (or JSON, which is YAML). Never raises: problems are part of the result."""
    # A str may contain a lone surrogate, which is not valid UTF-8: encoded this way, decoding reports its position.
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_BYTES:
        return _nothing(0, UnlocatedProblem((), f"is {len(raw):,} bytes long; a plan has at most {MAX_BYTES:,}"))
    try:
        return _parse(_with_pairs_joined(raw.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        place = _after(error.object[: error.start])
        return _nothing(place, UnlocatedProblem((), "is not UTF-8 text", "save it as UTF-8"))


def _parse(text: str) -> Parsed:
    tree = Tree()
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            tree.take(event)
    except UnreadableRest as error:
        tree.found.append((error.at, error.finding))
    except yaml.MarkedYAMLError as error:
        message = ": ".join(filter(None, (error.context, error.problem)))
        tree.found.append((at(error.problem_mark), UnlocatedProblem((), message)))
    except yaml.reader.ReaderError as error:
        place = _after(text.encode()[: error.position])
        tree.found.append((place, UnlocatedProblem((), f"holds the character U+{error.character:04X}: {error.reason}")))
    return Parsed(tree.source, tuple(Source(None, place).placed(each) for place, each in tree.found))


def _with_pairs_joined(text: str) -> str:
    return PAIR.sub(_joined, text) if text.lstrip()[:1] == "{" else text


def _joined(pair: re.Match[str]) -> str:
    high, low = (int(half, 16) for half in pair.group(2, 3))
    return f"{pair[1]}\\U{0x10000 + (high - 0xD800 << 10 | low - 0xDC00):08x}"


def _after(raw: bytes) -> int:
    read = raw.decode("utf-8", "replace").split("\n")
    return packed(len(read) - 1, len(read[-1]))


def _nothing(place: int, finding: UnlocatedProblem) -> Parsed:
    return Parsed(None, (Source(None, place).placed(finding),))
