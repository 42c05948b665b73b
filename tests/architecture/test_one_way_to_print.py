"""All that reaches a terminal goes through `cli.lib.output`; commands are offered by `workflows.output.suggestions`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRINTING = {"cli/lib/output.py"}
OWN_LINES = {  # one JSON object a line, made by `json_text`
    "supervisor/__main__.py": {"print(logged(part), flush=True)", "print(line("},
    "supervisor/processes/fork.py": {"print(end.code"},  # as Python does
    "cli/operations/metrics.py": {"sys.stdout.write(metrics_server.shown(runtime))"},  # its form escapes
    "cli/fork_server/server.py": {"print(line("},
    "supervisor/backup/schedule.py": {"print(line("},
    "cli/main.py": {"typer.echo(f\"interlock {version('interlock')}\")"},
}
MARKUP = {("rich.markup", "escape"), ("rich", "print"), ("rich.console", "Console")}
HELP = {  # examples in --help, made of the code's own words
    "cli/operations/overrides.py": {"example"},
    "cli/operations/playbooks.py": {"_examples"},
    "cli/jobs/answers.py": {"example"},
    "cli/patches/regression.py": {"example"},
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


def test_a_module_prints_through_the_one_way_only() -> None:
    """Say it with interlock.cli.lib.output: say, block, picture, print_table or print_json. Nothing else has markup."""
    stray, markup = {}, {}
    for module in modules("cli", "supervisor", "api", "console"):
        name = str(module.relative_to(ROOT))
        if name in PRINTING:
            continue
        tree = ast.parse(module.read_text())
        allowed = tuple(OWN_LINES.get(name, ()))
        if said := [said for call in prints(tree) if not (said := ast.unparse(call)).startswith(allowed)]:
            stray[name] = said
        imported = {
            (node.module, each.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for each in node.names
        }
        if imported & MARKUP:
            markup[name] = imported & MARKUP
    assert stray == {}
    assert markup == {}


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


def commands_in(module: Path) -> list[str]:
    """The commands that a module puts together from names, outside its help."""
    tree = ast.parse(module.read_text())
    helping = HELP.get(str(module.relative_to(ROOT)), set())
    spared = {
        each
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and helping & {ast.unparse(target) for target in node.targets}
        for each in ast.walk(node.value)
    }
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Constant) and node not in spared]
    return [
        text.replace("\0", "{}")
        for node in strings
        if (isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str))
        and COMMAND.search(text := written(node))
    ]


def test_no_command_is_put_together_from_names_but_by_the_one_function() -> None:
    """Offer it with interlock.workflows.output.suggestions.offered, which quotes."""
    packages = ("cli", "api", "console", "workers", "supervisor", "beat", "db", "workflows")
    found = {str(each.relative_to(ROOT)): commands for each in modules(*packages) if (commands := commands_in(each))}
    assert found == {}
