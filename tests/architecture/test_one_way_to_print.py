"""All that reaches a terminal goes through `cli.lib.output`; commands are offered by `workflows.output.suggestions`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINTING = {"cli/lib/output.py"}
OWN_LINES = {  # one JSON object a line, made by `json_text`
    "supervisor/__main__.py": {"print(logged(part), flush=True)", "print(line("},
    "supervisor/processes/fork.py": {"print(end.code"},  # as Python does
    "cli/operations/metrics.py": {"sys.stdout.write(metrics_server.shown(runtime))"},  # its form escapes
    "cli/fork_server/server.py": {"print(line("},
    "cli/main.py": {"typer.echo(f\"interlock {version('interlock')}\")"},
}
MARKUP = {("rich.markup", "escape"), ("rich", "print"), ("rich.console", "Console")}
HELP = {  # examples in --help, made of the code's own words
    "cli/operations/overrides.py": {"LOOK_FIRST", "DO_IT"},
    "cli/operations/playbooks.py": {"_examples"},
    "cli/jobs/answers.py": {"example"},
}
COMMAND = re.compile(r"\binterlock [a-z][^`;.\n]*\0")


def modules(*packages: str) -> list[Path]:
    return sorted(
        each for package in packages for each in (ROOT / package).rglob("*.py") if "migrations" not in each.parts
    )


def prints(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls that write where people read: `print`, `.print`, `echo`, and what writes to a standard stream."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("print", "input") or re.search(
                r"(\.print|\becho|\bsecho|std(out|err)(\.buffer)?\.write)$", called
            ):
                yield node


@pytest.mark.parametrize("module", modules("cli", "supervisor"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_prints_through_the_one_way_only(module: Path) -> None:
    name = str(module.relative_to(ROOT))
    if name in PRINTING:
        return
    tree = ast.parse(module.read_text())
    allowed = OWN_LINES.get(name, set())
    assert [
        said for call in prints(tree) if not any((said := ast.unparse(call)).startswith(each) for each in allowed)
    ] == [], "say it with interlock.cli.lib.output: say, block, picture, print_table or print_json"
    imported = {
        (node.module, each.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in node.names
    }
    assert imported & MARKUP == set(), "interlock.cli.lib.output has the consoles; nothing else reads or writes markup"


def test_the_consoles_read_no_markup_and_let_no_control_character_through() -> None:
    source = (ROOT / "cli" / "lib" / "output.py").read_text()
    made = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Console"
    ]
    assert made == []
    assert source.count("markup=False, emoji=False, highlight=False") == 1


def written(node: ast.AST) -> str:
    """A string as the code writes it, each interpolation a NUL; of a concatenation, all of it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(each.value if isinstance(each, ast.Constant) else "\0" for each in node.values)  # type: ignore[misc]
    return re.sub(r"\{[a-z_]*\}|%[sr]", "\0", node.value) if isinstance(node, ast.Constant) else ""


@pytest.mark.parametrize(
    "module",
    modules("cli", "workers", "supervisor", "beat", "db", "workflows"),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_command_is_put_together_from_names_but_by_the_one_function(module: Path) -> None:
    tree = ast.parse(module.read_text())
    helping = HELP.get(str(module.relative_to(ROOT)), set())
    spared = {
        each
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and helping & {ast.unparse(target) for target in node.targets}
        for each in ast.walk(node.value)
    }
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Constant) and node not in spared]
    found = [
        text.replace("\0", "{}")
        for node in strings
        if (isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str))
        and COMMAND.search(text := written(node))
    ]
    assert found == [], "offer it with interlock.workflows.output.suggestions.offered, which quotes"
