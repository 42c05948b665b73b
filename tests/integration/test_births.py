"""What an instance of the orchestration is born of: others that exist, and what its typed row can hold."""

from typing import Any

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, UnknownInstance
from tests.walking import Walker

pytestmark = pytest.mark.integration
NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def walker(runtime: Runtime, dba: "psycopg.Connection[Any]") -> Walker:
    return Walker(runtime, dba)


@pytest.mark.parametrize(
    ("type_", "context"),
    [
        ("workstream", {"run_id": NOBODY}),
        ("task", {"workstream_id": NOBODY}),
        ("task", {"depends_on": [NOBODY]}),
        ("patch_ledger", {"workstream_id": NOBODY}),
        ("patch_ledger", {"patch_id": "nothing"}),
        ("patch_ledger", {"task_id": NOBODY}),
        ("test_gate", {"workstream_id": NOBODY}),
        ("job", {"depth": 1, "parent_job_id": NOBODY}),
    ],
)
def test_who_names_nobody_is_told_what_does_not_exist(walker: Walker, type_: str, context: dict[str, Any]) -> None:
    with pytest.raises(UnknownInstance, match=f"{NOBODY}|nothing") as refused:
        walker.born(walker.get(type_), **context)
    assert "create" in str(refused.value)


@pytest.mark.parametrize("state", ["validating", "completed", "failed", "cancelled", "skipped"])
def test_a_workstream_whose_tasks_are_done_takes_no_more(walker: Walker, state: str) -> None:
    """WORKSTREAM-1, WORKSTREAM-2: what completes has completed all of its tasks."""
    workstream = walker.at(walker.get("workstream"), state)
    with pytest.raises(BadInput, match=f"is {state}: it takes no more tasks"):
        walker.born(walker.get("task"), workstream_id=str(workstream))


def test_what_postgresql_refuses_of_a_context_is_bad_input(walker: Walker) -> None:
    tool = str(uuid7())
    walker.born(walker.get("circuit_breaker"), tool_id=tool)
    with pytest.raises(BadInput, match=tool):
        walker.born(walker.get("circuit_breaker"), tool_id=tool)
    parent = walker.born(walker.get("job"))
    with pytest.raises(BadInput, match="a child of a job of depth 0 has depth 1, not 3"):
        walker.born(walker.get("job"), depth=3, parent_job_id=str(parent))


def test_a_typed_row_says_what_it_is_called_and_whom_it_is_tried_again_for(walker: Walker) -> None:
    """CHECK-20: metadata, which records `retry_of`."""
    task = walker.get("task")
    before = walker.born(task)
    made = walker.born(task, name="build/compile", title="Compile", retry_of=str(before), metadata={"ticket": 7})
    row = walker.dba.execute("SELECT metadata FROM tasks WHERE task_id = %s", (made,)).fetchone()
    assert row == ({"name": "build/compile", "title": "Compile", "retry_of": str(before), "ticket": 7},)
    for type_, table in (("run", "runs"), ("workstream", "workstreams"), ("patch_ledger", "patch_ledger_entries")):
        walker.born(walker.get(type_), name=f"a {type_}", metadata="not an object")
        assert walker.dba.execute(f"SELECT metadata FROM {table} WHERE metadata <> '{{}}'").fetchall() == [  # type: ignore[arg-type]
            ({"name": f"a {type_}"},)
        ]


@pytest.mark.parametrize("code", ["0", "abc", 1.5, 2**40, True, {"code": 1}])
def test_an_exit_code_that_is_none_is_kept_in_history_and_holds_nothing_up(walker: Walker, code: object) -> None:
    task = walker.get("task")
    made = walker.at(task, "running")
    assert walker.ask(made, "execution_failed", exit_code=code).status == "applied"
    row = walker.dba.execute("SELECT state, exit_code FROM tasks WHERE task_id = %s", (made,)).fetchone()
    assert row == ("retrying", 0 if code == "0" else None)
