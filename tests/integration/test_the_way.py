"""The README lists the files that a trigger passes through, from `fire` to its commit; a real one is traced."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from interlock.db.core.requests import partition_of
from interlock.workers import tasks
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.runtime import Runtime
from tests.driving import outcome

ROOT = Path(__file__).parents[2]
MOST = 12


def listed() -> list[str]:
    """The files that the README names, in its order."""
    text = (ROOT / "README.md").read_text().partition("<!-- way:begin -->")[2].partition("<!-- way:end -->")[0]
    return re.findall(r"^\d+\. `([^`]+)`", text, re.MULTILINE)


def test_a_trigger_passes_through_the_files_that_the_readme_lists_and_in_that_order(
    runtime: Runtime, client: Client, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_drain", lambda: Drain(runtime))
    tasks.register(runtime.app)
    story = client.create("story", "S-1", project=project)
    partition = partition_of(story["id"])
    passed: dict[str, None] = {}

    def pass_through(frame: FrameType, event: str, _: Any) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(ROOT):
            passed.setdefault(str(file.relative_to(ROOT)).removeprefix("src/interlock/"))

    before = sys.getprofile()
    sys.setprofile(pass_through)
    try:
        receipt = client.fire(story["id"], "design_complete", by="agent-1")
        runtime.app.tasks["interlock.apply"].apply(args=[partition, receipt.request_id], throw=True)
    finally:
        sys.setprofile(before)
    assert outcome(client, receipt.request_id)["status"] == "applied"
    files = listed()
    assert len(files) <= MOST
    assert [file for file in passed if file in files] == files
