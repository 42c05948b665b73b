"""A definition as a Temporal worker: a Python program on the `temporalio` SDK."""

import sys
from collections.abc import Iterable, Mapping

from interlock.workflows.definition import Definition
from interlock.workflows.forms import parts
from interlock.workflows.machines.delivery.approval import APPROVAL
from interlock.workflows.versioning.export import checksum

CATALOGUE = "interlock.workflows.catalogue"
WORKFLOW = '''

@workflow.defn(name="{type}@{version}")
class {name}(TemporalMachine):
    """{summary}"""

    definition = KNOWN.get("{type}", "{version}")

    @workflow.run
    async def run(self, start: TemporalStart) -> dict[str, Any]:
        """Live until the instance has ended."""
        return await self.live(start)'''


def temporal(definition: Definition) -> str:
    """A program that runs a worker for one definition, and for its approvals if it asks for any.

    Args:
        definition: its machine; the program imports it, and refuses to run if it has changed.

    Returns:
        Python that needs the packages `interlock` and `temporalio`.
    """
    asks = definition is not APPROVAL and any(move.approval for move in definition.transitions)
    machines = (definition, APPROVAL) if asks else (definition,)
    needed = dict.fromkeys(effect.name for each in machines for effect in each.effects)
    return parts.filled(
        parts.template("temporal_worker.py.txt"),
        TYPE=definition.type,
        VERSION=definition.version,
        SUMMARY=_in_docstring(definition.summary),
        FILE=parts.file_name(definition, ".py"),
        MODULES=repr(_modules(definition)),
        EFFECTS=_listed(needed),
        ASKING=_listed(trigger for trigger in definition.triggers if parts.facts_needed(definition, trigger)),
        RELINKING=_listed(dict.fromkeys(move.trigger for move in definition.transitions if move.relink)),
        WORKFLOWS="\n".join(_workflow(each) for each in machines),
        CLASSES=", ".join(map(_class_name, machines)),
        CHECKSUM=checksum(definition),
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def _class_name(definition: Definition) -> str:
    return "".join(word.capitalize() for word in definition.type.split("_"))


def _workflow(definition: Definition) -> str:
    summary, name = _in_docstring(definition.summary), _class_name(definition)
    return WORKFLOW.format(type=definition.type, version=definition.version, name=name, summary=summary)


def _in_docstring(text: str) -> str:
    return parts.one_line(text).replace("\\", "").replace('"', "'")


def _modules(definition: Definition) -> tuple[str, ...]:
    """The modules whose `WORKFLOWS` has a definition, besides Interlock's own."""
    if _has(sys.modules.get(CATALOGUE), definition):
        return ()
    return tuple(sorted(name for name, module in [*sys.modules.items()] if _has(module, definition)))


def _has(module: object, definition: Definition) -> bool:
    known = getattr(module, "WORKFLOWS", None)
    return isinstance(known, Mapping) and known.get((definition.type, definition.version)) == definition
