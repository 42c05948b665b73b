"""Every shipped definition can be exported in every form, and the same one always gives the same text."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import Definition
from interlock.workflows.forms.forms import FORMS
from interlock.workflows.forms.parts import PLACE
from interlock.workflows.versioning.export import checksum

ROOT = Path(__file__).parents[2]
every_form = pytest.mark.parametrize("name", FORMS)
DIGESTS = """
import sys
from hashlib import sha256
from interlock.workflows.catalogue import catalogue
from interlock.workflows.forms.forms import FORMS
from interlock.workflows.forms.parts import PLACE
from interlock.workflows.versioning.export import checksum
for form in FORMS.values():
    text = "".join(form.write(definition) for definition in catalogue())
    print(form.name, sha256(text.encode()).hexdigest())
assert "temporalio" not in sys.modules  # a client has none
"""


@pytest.mark.parametrize("definition", list(catalogue()), ids=lambda each: f"{each.type}-{each.version}")
def test_a_definition_exports_in_every_form_with_its_states_triggers_and_guards(definition: Definition) -> None:
    named = (
        *definition.triggers,
        *definition.states,
        *(guard.name for move in definition.transitions for guard in move.when),
    )
    for name, form in FORMS.items():
        text = form.write(definition)
        assert text.endswith("\n"), name
        assert PLACE.search(text) is None, name
        said = (checksum(definition),) if name == "temporal" else named  # it imports the definition itself
        assert [each for each in said if each not in text] == [], name


def test_exports_are_the_same_in_another_process() -> None:
    command = [sys.executable, "-c", DIGESTS]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    here = {
        form.name: sha256("".join(form.write(definition) for definition in catalogue()).encode()).hexdigest()
        for form in FORMS.values()
    }
    assert dict(line.split() for line in printed.splitlines()) == here


@every_form
def test_the_guide_describes_every_form(name: str) -> None:
    assert f"| `{name}` |" in (ROOT / "docs" / "forms.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("definition", list(catalogue()), ids=lambda each: f"{each.type}-{each.version}")
def test_each_state_of_the_amazon_states_language_leads_on_and_can_be_reached(definition: Definition) -> None:
    machine = json.loads(FORMS["asl"].write(definition))
    states = machine["States"]
    reached, to_see = set(), [machine["StartAt"]]
    while to_see:
        name = to_see.pop()
        if name not in reached:
            reached.add(name)
            to_see += _ways_out(states[name])
    assert reached == set(states)
    assert max(map(len, states)) <= 80
    assert {each["Type"] for each in states.values()} <= {"Task", "Choice", "Pass", "Succeed"}
    assert "Succeed" in {each["Type"] for each in states.values()}


def _ways_out(state: dict[str, Any]) -> list[str]:
    if state["Type"] == "Succeed":
        return []
    if state["Type"] == "Choice":
        return [state["Default"], *(each["Next"] for each in state["Choices"])]
    return [state["Next"], *(each["Next"] for each in state.get("Catch", []))]
