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
# What the stops call on the way, and for what: no choice of the way is made there, and nothing of it is written.
HELPERS = {
    "workflows/input/arguments.py": "judges a call's arguments",
    "workflows/input/limits.py": "judges the size and depth of data",
    "workflows/input/names.py": "judges names",
    "workflows/output/escaping.py": "shows names harmlessly",
    "workflows/catalogue.py": "finds a definition",
    "workflows/definition.py": "is a definition",
    "workflows/outcomes.py": "is what was decided",
    "workers/runtime.py": "holds a process's connections",
    "workers/settings.py": "says where they lead",
    "workers/client/transaction.py": "runs a statement, and then sends its wake-up",
    "workers/client/receipts.py": "says what was accepted",
    "workers/broker/wakeups.py": "is the message",
    "workers/engine/answers.py": "says in words what was decided, for Flower",
    "workers/engine/creation.py": "would create approvals",
    "workers/engine/deprecations.py": "would count uses of what is deprecated",
    "workers/telemetry/logs.py": "logs",
    "workers/telemetry/tracing.py": "traces",
    "workers/telemetry/spans.py": "traces, if something of this process did before",
    "db/connection.py": "connects",
    "db/retry.py": "tries again",
    "db/fast_path.py": "runs a statement without SQLAlchemy",
    "db/statements.py": "reads statements from their files",
    "db/schema.py": "names the schema",
    "db/core/instances.py": "finds an instance by its name",
    "db/core/guard_rows.py": "reads what guards look at",
    "db/core/deprecations.py": "reads what is deprecated",
    "db/core/effects.py": "would write effects",
    "db/core/counters.py": "counts",
}


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
    ours = [file for file in passed if file.partition("/")[0] in ("workflows", "workers", "db")]
    assert [file for file in ours if file not in HELPERS] == files
    assert all((ROOT / file).exists() for file in HELPERS)
