"""What the console makes of the commands that are offered for stuck instances."""

import ast
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from interlock.console.cures import CURES, Cure, ForShell, cure
from interlock.workers.operations import stuck as offering
from interlock.workers.operations.stuck.detector import Stuck
from interlock.workflows.machines.orchestration.regression import REGRESSION
from interlock.workflows.output.suggestions import offered

ID = UUID("01977777-7777-7777-8777-777777777777")
ELSEWHERE = f"../overrides/reset-task/{ID}?"


def stuck(*words: object, **options: object) -> Stuck:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Stuck(ID, 3, "task", "t", "default", "queued", now, 60.0, "it waits", offered(*words, **options))


@pytest.mark.parametrize(
    "words",
    [
        ("show", ELSEWHERE),
        ("fire", ELSEWHERE, "go"),
        ("fire", "story/S-1", "go"),
        ("override", "reset-task", ELSEWHERE),
        ("worker", "resume", ELSEWHERE),
    ],
)
def test_no_name_becomes_part_of_the_address_that_a_cure_posts_to(words: tuple[str, ...]) -> None:
    assert isinstance(cure(stuck(*words)), ForShell)


def test_a_cure_posts_to_the_instance_for_the_version_that_was_shown() -> None:
    found = cure(stuck("fire", ID, "go", if_version=3, reason="WHY"))
    assert isinstance(found, Cure)
    assert (found.url, found.fields) == (f"/instances/{ID}/fire", {"trigger": "go", "if_version": "3"})
    assert cure(stuck("worker", "shutdown", "ci-1")).url == "/workers"  # type: ignore[union-attr]


def offers() -> set[tuple[str, ...]]:
    """The words of each command that `stuck` can offer, as its source has them, up to the first argument."""
    found = set()
    for path in Path(offering.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("offered", "_offered"):
                given = node.args[1:] if getattr(node.func, "id", "") == "_offered" else node.args
                texts = [each.value if isinstance(each, ast.Constant) else None for each in given]
                found.add(tuple(map(str, texts[: texts.index(None) if None in texts else len(texts)])))
            if isinstance(node, ast.Constant):
                assert not str(node.value).startswith("interlock "), f"{path}: {node.value} is not `offered`"
    return found - {()}


def test_every_offer_has_a_button_a_link_or_a_sentence_and_nothing_else_has() -> None:
    made = {each: next((words for words in CURES if each[: len(words)] == words), None) for each in offers()}
    assert len(made) > 20
    assert [each for each, words in made.items() if words is None] == []
    assert set(CURES) - set(made.values()) == set()


def test_what_needs_no_shell_has_a_button_or_a_link() -> None:
    assert cure(stuck("phase", "thaw", "release", project="p", if_version=4)) == Cure(
        "Thaw the phase",
        "/phases/thaw",
        {"name": "release", "project": "p", "if_version": "4"},
        "The runs that it holds go on.",
    )
    for words, url in (
        (("job", "show", ID), f"/instances/{ID}"),
        (("subscription", "show", "billing"), f"/instances/{ID}"),
        (("limit", "show", "type", "story"), "/brakes"),
        (("dead",), "/dead"),
    ):
        link = cure(stuck(*words))
        assert isinstance(link, Cure)
        assert (link.url, link.fields) == (url, None)
    for words in (("doctor",), ("playbook", "run", "recover-workstream", ID)):
        assert isinstance(cure(stuck(*words)), ForShell)


def test_a_rollback_is_approved_for_the_version_that_was_shown() -> None:
    found = cure(stuck("regression", "approve", ID))
    assert isinstance(found, Cure)
    assert (found.url, found.fields) == (f"/instances/{ID}/fire", {"trigger": "approve", "if_version": "3"})
    assert found.by_operators
    assert "approve" in REGRESSION.legal("proposed")
