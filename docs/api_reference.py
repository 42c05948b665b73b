"""The reference of docs/api.md, from the code: signatures as they are written, and docstrings."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from textwrap import dedent
from typing import Any

import interlock
from interlock import AsyncClient, EffectCall
from interlock.workflows import errors
from interlock.workflows.errors import InterlockError

ORDER: tuple[str, ...] = (
    "Client",
    "AsyncClient",
    "CommittedEvent",
    "Agent",
    "Firing",
    "Receipt",
    "NotSettled",
    "VersionConflict",
)
ORDER += (
    "Definition",
    "T",
    "Guard",
    "Case",
    "ApprovalPoint",
    "Effect",
    "Deadline",
    "effect",
    "webhook",
    "EffectCall",
    "EffectCancelled",
    "check",
    "decide",
    "InterlockError",
)
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises):\n((?:(?: {4}.*)?\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^(\S.*?): (.*(?:\n .*)*)", re.MULTILINE)
WRITTEN = {
    "FreeObject": "Mapping[str, Any]",
    "FreeModel": "Mapping[str, Any] | BaseModel",
    "FreeText": "str",
    "Caller": "Session | Connection | DjangoConnection",
}


def api_reference() -> str:
    """Every public name, in the order of `ORDER`."""
    return "\n\n".join(f"## `{name}`\n\n{_described(name, getattr(interlock, name))}" for name in ORDER)


def sections(documented: Any) -> dict[str, str]:
    """Section -> text, of a docstring; what stands before the first is called `""`."""
    text = inspect.cleandoc(documented.__doc__ or "") + "\n"
    return {"": SECTION.sub("", text).strip(), **{name: dedent(body).strip() for name, body in SECTION.findall(text)}}


def entries(text: str) -> dict[str, str]:
    """Name -> what is said of it, of a section; names that share a line each have it."""
    found = ENTRY.findall(text)
    return {name: " ".join(said.split()) for names, said in found for name in names.split(", ")}


def methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """(name, function) of each public method of a class, those it inherits first."""
    for base in reversed(kind.__mro__[:-1]):
        for name, found in vars(base).items():
            one = getattr(found, "__func__", found)
            if not name.startswith("_") and inspect.isfunction(one):
                yield name, one


def _described(name: str, documented: Any) -> str:
    if inspect.isfunction(documented):
        return _function(name, documented)
    if is_dataclass(documented):
        called = [EffectCall.heartbeat] if documented is EffectCall else []  # others' methods are for Interlock itself
        return "\n\n".join(
            [_text(documented), *(f"### `{name}.{one.__name__}`\n\n{_function(one.__name__, one)}" for one in called)]
        )
    if documented is InterlockError:
        return f"{_text(documented)}\n\n{_errors()}"
    if issubclass(documented, InterlockError):  # callers catch it and never make one
        return _text(documented)
    head = f"{_text(documented)}\n\n{_function(name, documented.__init__)}"
    if documented is AsyncClient:
        return "\n\n".join([head, _code(*(_signature(each, one, _used(one)) for each, one in methods(documented)))])
    return "\n\n".join([head, *(f"### `{name}.{each}`\n\n{_function(each, one)}" for each, one in methods(documented))])


def _used(method: Callable[..., Any]) -> str:
    """What stands before a call of an async method."""
    iterates = "AsyncIterator" in str(inspect.signature(inspect.unwrap(method)).return_annotation)
    return "async for event in " if iterates else "await "


def _function(name: str, function: Callable[..., Any]) -> str:
    return f"{_code(_signature(name, function))}\n\n{_text(function)}"


def _signature(name: str, function: Callable[..., Any], before: str = "") -> str:
    """As it is written in its file, without `self`."""
    (node,) = ast.parse(dedent(inspect.getsource(inspect.unwrap(function)))).body
    assert isinstance(node, ast.FunctionDef)
    said = node.args
    said.args = [each for each in said.args if each.arg not in ("self", "cls")]
    given = re.sub(r"(?<=[\w\]'\"])=", " = ", ast.unparse(said))
    returned = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    text = f"{before}{name}({given}){returned}"
    for alias, written in WRITTEN.items():
        text = re.sub(rf"\b{alias}\b", written, text)
    return text.replace("Session | Connection | DjangoConnection", "AsyncSession | AsyncConnection") if before else text


def _text(documented: Any) -> str:
    found = sections(documented)
    parts = [found.pop("")]
    for section, text in found.items():
        if section == "Returns":
            parts.append(f"Returns: {' '.join(text.split())}")
        else:
            rows = [f"- `{name}`: {said}" for name, said in entries_in_lines(text)]
            parts.append("\n".join([f"{section}:", "", *rows]) if section == "Raises" else "\n".join(rows))
    return "\n\n".join(parts)


def entries_in_lines(text: str) -> Iterator[tuple[str, str]]:
    """(names, what is said of them) as a section has them."""
    for names, said in ENTRY.findall(text):
        yield "`, `".join(names.split(", ")), " ".join(said.split())


def _errors() -> str:
    """Every error of `workflows.errors`, and what else a public method raises, with its docstring."""
    public = [one for name in ORDER if inspect.isclass(kind := getattr(interlock, name)) for _, one in methods(kind)]
    raised = {name for one in public for name in entries(sections(one).get("Raises", ""))}
    kinds = [kind for kind in _below(InterlockError) if kind.__name__ in raised or kind.__module__ == errors.__name__]
    rows = [
        f"| `{kind.__name__}` | `{kind.__module__}` | {' '.join((kind.__doc__ or '').split())} |"
        for kind in sorted(kinds, key=lambda each: each.__name__)
    ]
    return "\n".join(["| error | of | what happened, and what to do |", "|---|---|---|", *rows])


def _below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def _code(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])
