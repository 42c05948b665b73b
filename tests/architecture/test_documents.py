"""The documents say what the code says: generated parts, settings, dependencies, commands and links."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.generate import PARTS, ROOT, NoMarkers, Part
from interlock.cli.index import MODULES, loaded
from interlock.workers.broker.config import celery_settings
from interlock.workers.operations.doctor import CHECKS

DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
CELERY = celery_settings("redis://redis")
FENCE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
ROW = re.compile(r"^\| `?([\w.-]+)`? \| (.*?) \|", re.MULTILINE)
LINK = re.compile(r"\]\(([^)]+)\)")


def read(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(text: str) -> dict[str, str]:
    """First cell -> second cell of every table row whose first cell is one plain name."""
    return dict(ROW.findall(text))


# Generated --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_generated_parts_are_current(part: Part) -> None:
    assert part.is_current(), "run `python -m docs.generate`"


def test_generating_twice_changes_nothing_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text("before\n<!-- x:begin -->\nold\n<!-- x:end -->\nafter\n")
    part = Part(document, "x", lambda: "new")
    document.write_text(part.fresh())
    assert document.read_text() == "before\n<!-- x:begin -->\nnew\n<!-- x:end -->\nafter\n"
    assert part.is_current()


def test_a_document_without_its_markers_is_an_error(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text("<!-- x:begin -->\nnever closed\n")
    with pytest.raises(NoMarkers, match=r"document\.md"):
        Part(document, "x", str).fresh()


# Lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "required"),
    [
        ("## The client", PROJECT["project"]["dependencies"]),
        ("## `interlock[server]`", EXTRAS["server"]),
        ("## `interlock[embedded]`", EXTRAS["embedded"]),
        ("## For development", PROJECT["dependency-groups"]["dev"]),
    ],
)
def test_each_dependency_has_its_reason(heading: str, required: list[str]) -> None:
    section = read("dependencies.md").split(heading)[1].split("\n## ")[0]
    reasons = {name: reason for name, reason in rows(section).items() if name != "package" and name.strip("-")}
    assert sorted(reasons) == sorted(re.split(r"[\[<>=~!; ]", each)[0] for each in required)
    assert all(len(reason) > 10 for reason in reasons.values())


@pytest.mark.parametrize("setting", sorted(CELERY | CELERY["broker_transport_options"]))
def test_each_celery_setting_has_its_value_and_reason(setting: str) -> None:
    documented = rows(read("celery.md"))
    value: Any = (CELERY | CELERY["broker_transport_options"])[setting]
    assert setting in documented
    if setting == "accept_content" or (isinstance(value, int | float | str | None) and setting != "broker_url"):
        assert documented[setting] == f"`{value}`"


def test_no_celery_setting_is_described_that_is_not_set() -> None:
    text = read("celery.md")
    described = {name for name in rows(text) if "_" in name}
    assert described == set(CELERY | CELERY["broker_transport_options"])


def test_operators_find_every_check_of_doctor() -> None:
    table = read("operations.md").split("| `doctor` says | go to |")[1].split("\n\n")[0]
    for name, _ in CHECKS:
        assert f"`{name}`" in table


# Commands ---------------------------------------------------------------------------------------------------------


def spoken() -> Iterator[tuple[str, str]]:
    """(document, command line) of every `interlock …` in the documents."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
        for code in [*lines, *CODE.findall(FENCE.sub("", text))]:
            bare = code.split("  #")[0].removeprefix("$ ").replace("$(", ";").replace(")", ";")
            for command in re.split(r"&&|;|\|", bare):
                words = re.sub(r"^(\s*\w+=\S+)*\s*", "", command).strip()
                words = re.sub(r"^docker compose exec triggers ", "", words)
                if words.startswith("interlock ") and "…" not in words:
                    yield document.name, words


def test_every_command_that_is_named_exists_with_its_options() -> None:
    found = sorted(set(spoken()))
    assert len(found) > 20
    for document, line in found:
        name, *words = shlex.split(line, comments=True)[1:]
        if name.startswith("-"):
            assert name in ("--help", "--version"), f"{document}: {line}"
            continue
        assert name in MODULES, f"{document}: {line}"
        command: Any = loaded(name)
        for word in words:
            if word.startswith("-"):
                known = {"--help"} | {option for parameter in command.params for option in parameter.opts}
                assert word.split("=")[0] in known, f"{document}: {line}"
            elif hasattr(command, "commands"):
                word = word if word in command.commands else getattr(command, "default", word)  # noqa: PLW2901
                assert word in command.commands, f"{document}: {line}"
                command = command.commands[word]


# Links ------------------------------------------------------------------------------------------------------------


def test_links_lead_somewhere() -> None:
    assert [
        f"{document.name}: {link}" for document in DOCUMENTS for link in links(document) if astray(document, link)
    ] == []


def links(document: Path) -> list[str]:
    """Those to our own files."""
    found = LINK.findall(FENCE.sub("", document.read_text(encoding="utf-8")))
    return [link for link in found if "://" not in link]


def astray(document: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (document.parent / path) if path else document
    return not target.exists() or (anchor != "" and anchor not in anchors(target))


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
