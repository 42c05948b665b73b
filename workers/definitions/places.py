"""The line of what a fault speaks of, within the call that made the part: that of `initial=` in a `Definition(…)`."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from interlock.workflows.faults import Fault

QUOTED = re.compile(r"'([^']+)'")


def exact(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The same faults, each at the first line of its call that has what its message quotes; else where they were."""
    parsed = cache(_parsed)  # anew for each answer: the files are being written
    return tuple(replace(each, place=_exact(each, parsed(each.place.rpartition(":")[0]))) for each in faults)


def _parsed(path: str) -> ast.AST | None:
    try:
        return ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _exact(fault: Fault, tree: ast.AST | None) -> str:
    path, _, line = fault.place.rpartition(":")
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)] if tree else []
    call = next((each for each in calls if str(each.lineno) == line), None)
    if call is None:
        return fault.place
    first = fault.message.partition(" ")[0]  # `links must be a tuple …`
    part: ast.Call | ast.keyword = next((each for each in call.keywords if each.arg == first), call)
    written = dict(reversed([*_written(part)]))
    found = next((written[each] for each in QUOTED.findall(fault.message) if each in written), part.lineno)
    return f"{path}:{found}"


def _written(part: ast.AST) -> Iterator[tuple[str, int]]:
    """The texts and the names of arguments in a call or an argument, each with its line, in the order of the lines."""
    found = []
    for node in ast.walk(part):
        if isinstance(node, ast.keyword) and node.arg:
            found.append((node.arg, node.lineno))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append((node.value, node.lineno))
    yield from sorted(found, key=lambda each: each[1])
