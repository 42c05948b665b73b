"""docs/security.md claims only what a test tries, and its table of escapes is the one that is tried."""

import ast
import re
from functools import cache

from docs.generate import ROOT
from tests.attempts import ATTEMPTS

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([a-z]+/test_\w+)::(test_\w+)`", PAGE)))
CLAIMS = [row for row in PAGE.splitlines() if row.startswith("| ") and row.count("|") == 5]


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / f"{file}.py").read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_it_names_is_there() -> None:
    assert len(NAMED) > 250
    assert [f"{file}::{name}" for file, name in NAMED if name not in functions(file)] == []


def test_every_claim_names_a_test() -> None:
    tables = ("| claim |", "| a command |", "| tables |", "| `")  # of rights, which one test prints as a whole
    claims = [row for row in CLAIMS if not row.startswith(tables) and "stopped |" not in row]
    assert len(claims) > 30
    assert [row for row in claims if "::test_" not in row] == []


def test_its_table_of_escapes_is_the_one_that_is_tried() -> None:
    said = {True: "**succeeds**", False: "stopped"}
    table = [row for row in PAGE.splitlines() if row.startswith("| ") and row.count("| stopped |")]
    assert table == [
        f"| {name} | stopped | {said[each.open_as_root]} | {said[each.open_as_user]} |"
        for name, each in ATTEMPTS.items()
    ]
