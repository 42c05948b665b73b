"""What holds the code together, checked as code: layers, one importer of `transitions`, words for everything public."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from interlock.beat.schedule import SCHEDULE
from interlock.workers.effect_runner import EFFECTS
from interlock.workers.sweeps import SWEEPS
from interlock.workflows.catalogue import catalogue
from interlock.workflows.effects import SHIPPED

ROOT = Path(__file__).parents[2]
PACKAGES = ("workflows", "db", "beat", "workers", "api", "console", "supervisor", "cli")
FILES = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
MAY_SLEEP = {
    "tests/api/test_gathering.py",  # turns that take their time, for requests that come meanwhile
    "tests/waiting.py",  # between two looks
    "tests/chaos/machines_of_chaos.py",  # a guard that takes its time, for tests that kill it meanwhile
    "tests/integration/mines.py",  # a guard that never comes back
}
TESTS = sorted((ROOT / "tests").rglob("*.py"))
Documented = ast.FunctionDef | ast.ClassDef


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def names(file: Path, word: str) -> bool:
    """Whether a file has a word at all: to parse it takes much longer."""
    return word in file.read_text()


def short(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_every_import_keeps_to_its_layer() -> None:
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--no-cache",
        "--config",
        str(ROOT / "pyproject.toml"),
    ]
    linted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout


def test_only_decide_imports_the_transitions_library() -> None:
    importers = {
        short(file) for file in FILES if names(file, "transitions") and "transitions" in imported(parsed(file))
    }
    assert importers == {"workflows/decide.py"}


def imported(module: ast.Module) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    names = {alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        node.module for node in ast.walk(module) if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    return {name.partition(".")[0] for name in names}


def test_everything_public_says_what_it_is() -> None:
    silent = {}
    for file in FILES:
        module = parsed(file)
        names = [node.name for node in public(module) if not ast.get_docstring(node)]
        if module.body and not ast.get_docstring(module):
            names.append("the module")
        if names:
            silent[short(file)] = names
    assert silent == {}


def public(parent: ast.Module | ast.ClassDef) -> Iterator[Documented]:
    """The public functions, classes and methods of a module; a Protocol's or override's methods too."""
    for node in parent.body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def test_tests_wait_for_facts_never_for_a_time() -> None:
    named = [file for file in TESTS if names(file, "sleep")]
    sleepers = {short(file) for file in named for node in ast.walk(parsed(file)) if is_sleep(node)}
    assert sleepers - MAY_SLEEP == set()


def is_sleep(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(called, ast.Attribute | ast.Name) and getattr(called, "attr", getattr(called, "id", "")) == "sleep"
    )


def test_every_sweep_of_the_schedule_has_a_function_and_every_function_a_period() -> None:
    assert set(SWEEPS) == {sweep.name for sweep in SCHEDULE}


def test_every_effect_a_definition_asks_for_can_be_run() -> None:
    assert {effect.name for each in catalogue() for effect in each.effects} <= set(EFFECTS)
    assert set(EFFECTS) == SHIPPED, "what definitions are checked by"


def test_every_statement_file_is_used_and_says_why_it_is_one() -> None:
    statements = [file for file in sorted((ROOT / "db").rglob("*.sql")) if "migrations" not in file.parts]
    assert statements
    for statement in statements:
        module = statement.parents[2] / f"{statement.parent.name}.py"
        assert f'"{statement.stem}"' in module.read_text(), f"{statement.name} is not used by {module}"
        assert statement.read_text().startswith("-- "), f"{statement.name} does not say why"


def test_importing_opens_nothing() -> None:
    program = (
        "import socket, sys\n"
        "def refuse(*_, **__): raise SystemExit('a socket was opened at import')\n"
        "socket.socket.connect = refuse\n"
        "import interlock\n"
        "for name in interlock.__all__: getattr(interlock, name)\n"
        "import interlock.workers.tasks, interlock.workers.runtime, interlock.beat.sweeps, interlock.db.audit.verify\n"
        "import interlock.cli.main, interlock.supervisor.processes.loop\n"
        "from interlock.cli.index import MODULES, loaded\n"
        "for name in MODULES: loaded(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
