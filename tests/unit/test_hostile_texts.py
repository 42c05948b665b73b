"""Whatever a definition says: it is refused, or an export has the same code as with plain texts in its place."""

import ast
import io
import json
import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from interlock import ApprovalPoint, Deadline, Definition, Effect, Guard, T
from interlock.workflows.definition import Field, FollowUp, Link, Relink
from interlock.workflows.errors import InvalidDefinition
from interlock.workflows.forms.forms import FORMS
from interlock.workflows.versioning.validate import check

HOSTILE = (
    *("---><evil/><!---", "x--><evil2/><!--", "--!><evil/>", "-", "--", "-->", "]]><evil/>", "<!DOCTYPE x>", "&evil;"),
    *("g || evilcall() //", "*/ evil() /*", "`${evil()}`", "'; evil(); '", '"; evil(); "', "\\'; evil(); //", "\\"),
    *("a\nevil()", "a\r\nevil --> [*]", "a\u2028evil()", "a\u2029evil()", "a\x85evil()", "a\x0bevil()", "a\x0cevil()"),
    *(
        "'); DROP TABLE x; --",
        "$$; DROP TABLE x; --",
        "E'\\'; DROP TABLE x; --",
        '"""\nevil()\n"""',
        "'''",
        '"""',
        "%%",
    ),
    *("{type}", "{0}", "__TYPE__", "__CONFIG__", "a: b", "a --> [*]", "[*] --> a", "\x00evil", "\x01", "\u202eevil"),
)
PLAIN = "plain"
SLOTS = (
    *("summary", "guard", "description", "decider", "role", "inverse", "context_key", "field", "type", "state"),
    *("trigger", "effect", "event", "authority", "severity", "exclusive"),
)


def machine(**texts: str) -> Definition:
    """A machine with each part that forms write; `texts` says which of them has another text."""
    said = {slot: PLAIN if slot in ("summary", "description", "decider") else f"a_{slot}" for slot in SLOTS} | {
        "effect": "notice",
        "authority": "anyone",
        "severity": "info",
        "exclusive": "id",
    }
    said |= texts
    guard = Guard(said["guard"], lambda case: True, said["description"])
    then, told = (FollowUp(said["role"], "go"),), (Effect(said["effect"], exclusive=said["exclusive"]),)
    moves: tuple[Any, ...] = (
        T(said["trigger"], "begun", said["state"], when=(guard,), then=then, effects=told, event=said["event"]),
        T("ask", "begun", said["state"], when=(guard,), approval=ApprovalPoint(1, (said["decider"], "bob"))),
        T("link", "begun", "begun", relink=Relink(said["role"])),
        T("stop", "begun", said["state"], by=said["authority"], severity=said["severity"]),  # type: ignore[arg-type]
        T("go", "begun", "begun", when=(guard,)),
    )
    return Definition(
        type=said["type"],
        version="1.0.0",
        summary=said["summary"],
        states=("begun", said["state"]),
        initial="begun",
        terminal=frozenset({said["state"]}),
        transitions=moves,
        links=(Link(said["role"], said["type"], said["context_key"], said["inverse"]),),
        fields=(
            Field(said["context_key"], lambda value: True, "a name"),
            Field(said["field"], lambda value: True, "x"),
        ),
        deadlines=MappingProxyType({"begun": Deadline(60, "go", context_key=said["field"])}),
    )


def xml(text: str) -> list[Any]:
    root = Xml.fromstring(text)  # noqa: S314 - our own writing
    return [(each.tag, sorted(each.attrib)) for each in root.iter()]


def python(text: str) -> str:
    class Blank(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.Constant(type(node.value).__name__)

    return ast.dump(Blank().visit(ast.parse(text)))


def json_of(text: str) -> Any:
    def blank(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: blank(each) for key, each in value.items()}
        return [blank(each) for each in value] if isinstance(value, list) else type(value).__name__

    return blank(json.loads(text))


def javascript(text: str) -> str:
    token = re.compile(r'//[^\n\r\u2028\u2029]*|"(?:[^"\\\n\r]|\\.)*"')  # a string may hold U+2028 since ES2019
    return token.sub(lambda found: found[0][0], text)


def sql(text: str) -> str:
    token = re.compile(r"--[^\n\r]*|E'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"[^\"]*\"", re.DOTALL)
    return token.sub(lambda found: "--" if found[0][0] == "-" else "''", text)


def mermaid(text: str) -> list[str]:
    return [re.sub(r"\w+", "_", line) for line in io.StringIO(text)]


CODE: dict[str, Callable[[str], Any]] = {
    "mermaid": mermaid,
    "sql": sql,
    "xstate": javascript,
    "temporal": python,
    "scxml": xml,
    "asl": json_of,
}


def test_every_form_is_read_here() -> None:
    assert CODE.keys() == FORMS.keys()
    check(machine())


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("form", CODE)
def test_no_text_of_a_definition_becomes_code(form: str, slot: str) -> None:
    read, write = CODE[form], FORMS[form].write
    plain = read(write(machine()))
    for hostile in HOSTILE:
        definition = machine(**{slot: hostile})
        try:
            check(definition)
        except InvalidDefinition:
            continue
        assert read(write(definition)) == plain, hostile


@pytest.mark.parametrize("slot", ["guard", "state", "trigger", "type", "event", "authority", "effect"])
def test_a_name_that_could_be_code_is_refused(slot: str) -> None:
    for hostile in [each for each in HOSTILE if each not in ("__TYPE__", "__CONFIG__")]:
        with pytest.raises(InvalidDefinition):  # noqa: PT012 - which one was let through is to be told
            check(machine(**{slot: hostile}))
            pytest.fail(f"{hostile!r} was let through")
