"""Plays sequences in the XState form, under Node, with XState from npm; validates the form for AWS there, too."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from collections.abc import Sequence as Listed
from itertools import groupby
from pathlib import Path

from interlock.workflows.catalogue import catalogue
from interlock.workflows.forms.forms import FORMS
from tests.conformance.sequences import Answer, Sequence, as_json, read_answer

HERE = Path(__file__).parent
INSTALL = ("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")


class CannotRun(Exception):
    """What the form is run with is not here: the message says what, and why."""


def install(directory: Path, *options: str) -> Path:
    """Install the packages that `package-lock.json` names; returns where they are.

    Raises:
        CannotRun: there is no Node or npm, or the packages cannot be fetched.
    """
    if absent := [each for each in ("node", "npm") if shutil.which(each) is None]:
        raise CannotRun(f"{' and '.join(absent)} not found: install Node.js 18 or later, with npm")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, directory)
    command = [*INSTALL, *options]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise CannotRun(f"npm cannot install the packages: {done.stderr.strip()[-300:]}")
    return directory / "node_modules"


def invalid_asl(directory: Path) -> str:
    """What `asl-validator` says against the exported machines of the Amazon States Language; nothing: all are valid.

    Raises:
        CannotRun: as `install`.
    """
    validator = install(directory) / "asl-validator" / "dist" / "src" / "validator.js"
    form, files = FORMS["asl"], []
    for definition in catalogue():
        files.append(directory / form.file_name(definition))
        files[-1].write_text(form.write(definition), encoding="utf-8")
    command = ["node", HERE / "validate.mjs", validator, *files]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


class UnderNode:
    """The XState form in a directory, into which XState is installed."""

    def __init__(self, directory: Path) -> None:
        """Install XState. Raises as `install`."""
        self._directory = directory
        self._xstate = install(directory, "--omit=dev") / "xstate" / "dist" / "xstate.esm.js"

    def play(self, played: Listed[Sequence]) -> Iterator[tuple[Answer, ...]]:
        """The answers to each sequence; those of a definition stand together."""
        form, said = FORMS["xstate"], []
        for definition, group in groupby(played, lambda each: each.definition):
            machine = self._directory / form.file_name(definition)
            machine.write_text(form.write(definition), encoding="utf-8")
            said.append({"machine": str(machine), "played": [as_json(each) for each in group]})
        command = ["node", HERE / "play.mjs", self._xstate]
        text = json.dumps(said)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        for answers in json.loads(done.stdout):
            yield tuple(map(read_answer, answers))
