"""The forms that a definition can be exported in, one line each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from interlock.workflows.definition import Definition
from interlock.workflows.forms.asl import asl
from interlock.workflows.forms.parts import file_name
from interlock.workflows.forms.scxml import scxml
from interlock.workflows.forms.sql import sql
from interlock.workflows.forms.temporal import temporal
from interlock.workflows.forms.xstate import xstate
from interlock.workflows.versioning.export import mermaid


@dataclass(frozen=True, slots=True)
class Form:
    """A language that a definition can be written in.

    Attributes:
        name: what `--format` calls it.
        suffix: of its files.
        write: the text of a file that holds one definition. The same definition always gives the same text.
    """

    name: str
    suffix: str
    write: Callable[[Definition], str]

    def file_name(self, definition: Definition) -> str:
        """What the file of a definition is called: `story-1.0.0.sql`; a Python module `story_1_0_0.py`."""
        return file_name(definition, self.suffix)


_ALL = (
    Form("mermaid", ".mmd", lambda definition: mermaid(definition) + "\n"),
    Form("sql", ".sql", sql),
    Form("xstate", ".mjs", xstate),
    Form("temporal", ".py", temporal),
    Form("scxml", ".scxml", scxml),
    Form("asl", ".asl.json", asl),
)
FORMS: Mapping[str, Form] = MappingProxyType({each.name: each for each in _ALL})
