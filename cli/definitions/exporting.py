"""`interlock definitions export`: definitions as JSON, or in the form of another system."""

import json
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.lib import completing
from interlock.cli.lib.output import block, print_json
from interlock.workers.runtime import Runtime
from interlock.workers.settings import settings
from interlock.workflows.definition import Definition
from interlock.workflows.errors import BadInput
from interlock.workflows.forms.forms import FORMS, Form
from interlock.workflows.output.suggestions import offered
from interlock.workflows.versioning.export import public

JSON = "json"
NAMES = (JSON, *FORMS)


def export(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[TYPE[@VERSION]]",
            help="Only this definition; default: all, with the format json.",
            autocompletion=completing.types,
        ),
    ] = "",
    form: Annotated[
        str,
        typer.Option("--format", help=f"One of: {', '.join(NAMES)}.", autocompletion=completing.one_of(NAMES)),
    ] = JSON,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Instead of standard output: a file for json, a directory for another format."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json, the default.")] = True,
) -> None:
    """Export definitions as JSON: type, version, initial, states, and a transition for each source state, with who may
    fire it. With --format, in the form of another system; docs/forms.md says what each form keeps.

    \b
    Examples:
      interlock definitions export --output definitions.json
      interlock definitions export story --format mermaid
      interlock definitions export --format mermaid --output machines/
    """
    known = Runtime(settings()).catalogue
    chosen = [known.called(name)] if name else list(known)
    if form == JSON:
        _export_json(chosen, output)
    elif form not in FORMS:
        raise BadInput(f"there is no format {form!r}. There are: {', '.join(NAMES)}")
    elif output is not None:
        export_files(chosen, FORMS[form], output)
    elif not name:
        one = offered("definitions", "export", "story", format=form)
        raise BadInput(f"name a definition ({one}), or with --output a directory for all of them")
    else:
        block(FORMS[form].write(chosen[0]).removesuffix("\n"))


def _export_json(chosen: list[Definition], output: Path | None) -> None:
    exported = [public(definition) for definition in chosen]
    if output is None:
        print_json(exported)
    else:
        make(output.parent)
        _write(output, json.dumps(exported, indent=2) + "\n")


def export_files(chosen: list[Definition], form: Form, directory: Path) -> None:
    """Write each definition in a form to a file of its own. Raises `BadInput` if it cannot be written."""
    make(directory)
    for definition in chosen:
        _write(directory / form.file_name(definition), form.write(definition))


def make(directory: Path) -> None:
    """Make a directory for what is exported. Raises `BadInput` if it cannot be made."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"{directory} cannot be made ({error.strerror})"
        raise BadInput(f"{why}: name another place with --output") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}): name another place with --output") from error
