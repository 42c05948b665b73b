"""What the console makes of the commands that are offered for stuck instances."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from interlock.console.cures import cure
from interlock.workers.operations.stuck.detector import Stuck
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
    assert cure(stuck(*words)) is None


def test_a_cure_posts_to_the_instance_for_the_version_that_was_shown() -> None:
    found = cure(stuck("fire", ID, "go", if_version=3, reason="WHY"))
    assert found is not None
    assert (found.url, found.fields) == (f"/instances/{ID}/fire", {"trigger": "go", "if_version": "3"})
    assert cure(stuck("worker", "shutdown", "ci-1")).url == "/workers"  # type: ignore[union-attr]
