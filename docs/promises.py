"""docs/leads-on.md: what the orchestration promises where something dies or goes wrong, and the tests that show it.

A test shows a promise if it is marked `@pytest.mark.promise("O7")`. The tests' files are only read, never imported.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "promise"

PROMISES: Mapping[str, str] = {
    "O1": "A lost or forgotten claim is found again by its agent; a revoked one frees its room at once",
    "O2": "A breaker's trial ends with its claim, whatever ends that; a half-open breaker that nobody tries is stuck",
    "O3": "A task waits for its tool's open breaker without being tried, and `stuck` says for how many seconds",
    "O4": "A corrected patch recovers its task and workstream; gates judge it, too",
    "O5": "A worker that never became ready can be shut down, by command",
    "O6": "A half-loaded worker is watched like a busy one; told to end, it finishes what it holds and takes no more",
    "O7": "A critical failure counts while its workstream is paused",
    "O8": "A phase's paths, gates, freeze, approvers and affinity hold; an unknown phase is refused",
    "O9": "A UET worker holds its task by a claim, gives it back when it crashes, and is listed with the others",
    "O10": "A gate is `RUNNING` when it runs, not when it is asked for, and has a deadline in its machine",
    "O11": "A gate ends with its run, is run again by hand, and is given back as soon as a task if its node is killed",
    "O12": "Callers say which version they saw; another one is a conflict, checked where the trigger is applied",
    "O13": "Named events are in the journal; a gate that fails quarantines its patch, or leads to its rollback",
    "O14": "A task is stuck by its own time limit, what rests is declared, and no offered command harms what moved on",
    "O15": "A dry run starts nothing and writes nothing",
    "O16": "A sprint is completed once each of its stories is done or moved to another one",
    "O17": "The conditions of jobs and supervised workers have guards; jobs have a time limit, workers heartbeats",
    "O18": "A task's result reaches the tasks that name it; what cannot be used fails the task and says why",
    "O19": "What a task printed is shown to people, with the attempt, and its digest is in history",
}


def marked(tests: Path = ROOT / "tests") -> Iterator[tuple[str, str]]:
    """(promise, test) for each mark in the tests' files, in their order."""
    for file in sorted(tests.rglob("test_*.py")):
        if f".{MARK}(" not in (text := file.read_text(encoding="utf-8")):
            continue  # most have none, and parsing all of them takes a second
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                for promise in _promises(node):
                    yield promise, f"{file.relative_to(tests.parent)}::{node.name}"


def _promises(function: ast.FunctionDef) -> Iterator[str]:
    for each in function.decorator_list:
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == MARK:
            yield from (ast.literal_eval(argument) for argument in each.args)


def promises_table() -> str:
    """Each promise as a row: its number, what it is, and the tests that show it."""
    shown: dict[str, list[str]] = {}
    for promise, test in marked():
        shown.setdefault(promise, []).append(f"`{test.partition('/')[2]}`")
    rows = [f"| {each} | {what} | {'<br>'.join(shown.get(each, []))} |" for each, what in PROMISES.items()]
    return "\n".join(["| | promise | tests |", "|---|---|---|", *rows])
