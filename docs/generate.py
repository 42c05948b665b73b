"""Write the parts of the documents that say what the code says: settings, diagrams, a plan's fields, the API, ways on.

python -m docs.generate           write them between their markers
python -m docs.generate --check   write nothing; exit 1 and name the files that are not current
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from docs.api_reference import api_reference
from docs.leads_on import leads_on_tables
from docs.plan_reference import plan_reference
from docs.promises import promises_table
from interlock.workers.operations.metrics import METRICS
from interlock.workers.settings import Settings
from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import Definition
from interlock.workflows.versioning.export import mermaid
from tests.http_rights import rights_table

ROOT = Path(__file__).parents[1]
DRAWN = ("story", "pr_review", "sprint", "approval")
PREFIX = str(Settings.model_config["env_prefix"])


class NoMarkers(Exception):
    """A document has lost the markers of its generated part. Put them back where that part belongs."""


@dataclass(frozen=True)
class Part:
    """A generated part of a document: all between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""

    path: Path
    name: str
    render: Callable[[], str]

    def fresh(self) -> str:
        """The whole document with this part as it should be. Raises `NoMarkers`."""
        begin, end = (f"<!-- {self.name}:{edge} -->" for edge in ("begin", "end"))
        before, opened, rest = self.path.read_text(encoding="utf-8").partition(begin)
        _, closed, after = rest.partition(end)
        if not (opened and closed):
            raise NoMarkers(f"{self.path.name} has no {begin} … {end}")
        return f"{before}{begin}\n{self.render()}\n{end}{after}"

    def is_current(self) -> bool:
        """Whether the document needs no writing."""
        return self.path.read_text(encoding="utf-8") == self.fresh()


def diagrams() -> str:
    """A Mermaid state diagram of each machine in `DRAWN`, under its name and summary."""
    known = catalogue()
    return "\n\n".join(_diagram(known.get(type_)) for type_ in DRAWN)


def _diagram(definition: Definition) -> str:
    drawn = mermaid(definition)
    return f"**{definition.type}** {definition.version}: {definition.summary}\n\n```mermaid\n{drawn}\n```"


def metrics_table() -> str:
    """Every metric as a row: name, kind, labels, meaning."""
    rows = [f"| `{m.name}` | {m.kind} | {', '.join(f'`{each}`' for each in m.labels)} | {m.help} |" for m in METRICS]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])


def settings_table() -> str:
    """Every setting as a row: environment variable, default, what it is for."""
    rows = [(_variables(name, field), _default(field), _meaning(field)) for name, field in _fields()]
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])


def _fields() -> Iterable[tuple[str, FieldInfo]]:
    return Settings.model_fields.items()


def _variables(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    names = alias.choices if isinstance(alias, AliasChoices) else [f"{PREFIX}{name.upper()}"]
    return " or ".join(f"`{each}`" for each in names)


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if value is None or value == ():
        return "unset"
    return f"`{','.join(value) if isinstance(value, tuple) else value}`"


def _meaning(field: FieldInfo) -> str:
    limits = [
        f"{word} {getattr(rule, name):,}" for rule in field.metadata for name, word in LIMITS if hasattr(rule, name)
    ]
    return (field.description or "").replace("|", "\\|") + (f" ({', '.join(limits)})" if limits else "")


def deploy_listing() -> str:
    """The example package's module, as it is."""
    return f'```python title="deploys.py"\n{(ROOT / "examples" / "deploy" / "deploys.py").read_text()}```'


LIMITS = (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than"))

PARTS = (
    Part(ROOT / "README.md", "diagrams", diagrams),
    Part(ROOT / "docs" / "api.md", "api", api_reference),
    Part(ROOT / "docs" / "settings.md", "settings", settings_table),
    Part(ROOT / "docs" / "plans.md", "plan", plan_reference),
    Part(ROOT / "docs" / "metrics.md", "metrics", metrics_table),
    Part(ROOT / "docs" / "effects.md", "deploy", deploy_listing),
    Part(ROOT / "docs" / "tutorials" / "first-machine.md", "deploy", deploy_listing),
    Part(ROOT / "docs" / "leads-on.md", "leads-on", leads_on_tables),
    Part(ROOT / "docs" / "leads-on.md", "promises", promises_table),
    Part(ROOT / "docs" / "security.md", "http-rights", rights_table),
)


def main() -> int:
    """Write or check. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something is not current")
    check = parser.parse_args().check
    stale = [part for part in PARTS if not part.is_current()]
    for part in stale:
        print(f"{part.path.relative_to(ROOT)}: {part.name} {'is not current' if check else 'written'}")
        if not check:
            part.path.write_text(part.fresh(), encoding="utf-8")
    return int(bool(stale and check))


if __name__ == "__main__":
    sys.exit(main())
