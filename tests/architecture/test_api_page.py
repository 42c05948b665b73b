"""The public API is one page: every name, every parameter, every way it fails. `docs.generate` writes it."""

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import interlock
from docs.api_reference import ORDER, entries, methods, sections

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
CLASSES = [getattr(interlock, name) for name in ORDER if inspect.isclass(getattr(interlock, name))]
RECORDS = [kind for kind in CLASSES if is_dataclass(kind)]
OTHERS = [kind for kind in CLASSES if kind not in RECORDS and not issubclass(kind, interlock.InterlockError)]
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "T": interlock.T,
    **{kind.__name__: kind.__init__ for kind in OTHERS if "__init__" in vars(kind)},
    **{f"{kind.__name__}.{name}": one for kind in OTHERS for name, one in methods(kind)},
}


def test_every_public_name_is_described() -> None:
    assert set(ORDER) == set(interlock.__all__)
    assert re.findall(r"^## `(\w+)`$", PAGE, re.MULTILINE) == list(ORDER)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_says_what_goes_in_what_comes_out_and_what_fails(name: str) -> None:
    function = FUNCTIONS[name]
    said, signature = sections(function), inspect.signature(inspect.unwrap(function))
    taken = [each for each in signature.parameters if each not in ("self", "cls")]
    assert list(entries(said.get("Args", ""))) == taken
    assert said[""].strip()
    if signature.return_annotation not in (None, inspect.Signature.empty) and name != "T":
        assert said.get("Returns"), "what does it return?"


@pytest.mark.parametrize("kind", RECORDS)
def test_every_field_of_a_record_is_described(kind: Any) -> None:
    public = [each.name for each in fields(kind) if not each.name.startswith("_")]
    assert list(entries(sections(kind)["Attributes"])) == public


def test_the_examples_are_python() -> None:
    for block in re.findall(r"```python\n(.*?)```", PAGE.partition("<!-- api:begin -->")[0], re.DOTALL):
        ast.parse("async def _():\n" + "".join(f"    {line}\n" for line in block.splitlines()))
