"""What is archived stays as it is: PostgreSQL refuses the rest, and what is tampered with is named."""

from uuid import UUID

import psycopg
import pytest

from interlock.db.audit import verify
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import AlreadyExists, Archived, UnknownInstance
from tests.archived import approval, archive, expire_timers, relayed, rows
from tests.driving import applied
from tests.tampering import unprotected

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"


def test_a_name_that_is_archived_is_not_free_again(runtime: Runtime, client: Client, project: str, dba: Dba) -> None:
    made = approval(client, project, "A-1")
    expire_timers(dba)
    archive(runtime)
    with pytest.raises(AlreadyExists):
        client.create("approval", "A-1", project=project)
    assert client.create_many([client.birth("approval", "A-1", project=project)]) == 0
    with pytest.raises(psycopg.errors.UniqueViolation, match="its name cannot be reused"):
        dba.execute(
            "INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id,"
            " project, created_by) VALUES (gen_random_uuid(), 'approval', '1.0.0', 'pending', 'A-1', %s, 'x')",
            (project,),
        )
    client.create("approval", "A-1", project=UUID(int=7))
    with pytest.raises(Archived, match="was archived on"):
        Client(runtime).fire(made, "approve", by="bob")
    with pytest.raises(UnknownInstance, match="or is archived"):
        client.fire(made, "approve", by="bob")  # who knew it before


def test_nothing_can_be_deleted_that_does_not_stand_in_the_archive(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    made = approval(client, project, "A-1")
    for table, key in (("workflow_instances", "id"), ("workflow_transitions", "workflow_id")):
        with pytest.raises(psycopg.errors.RestrictViolation):
            dba.execute(f"DELETE FROM {table} WHERE {key} = %s", (made,))  # type: ignore[arg-type]
    with pytest.raises(psycopg.errors.RestrictViolation):
        dba.execute("UPDATE workflow_transitions SET triggered_by = 'mallory' WHERE workflow_id = %s", (made,))


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO archived_instances SELECT i.*, now() FROM workflow_instances i",  # leaving it there
        "INSERT INTO archived_transitions SELECT * FROM workflow_transitions",
        "UPDATE archived_instances SET current_state = 'approved'",
        "DELETE FROM archived_transitions",
        "TRUNCATE archived_transitions",
        "DELETE FROM archived_records",
    ],
)
def test_the_archive_takes_whole_instances_and_keeps_them(
    runtime: Runtime, client: Client, project: str, dba: Dba, statement: str
) -> None:
    made = client.create("supervised_worker", "V-1", project=project)["id"]
    applied(client, made, "terminate")
    relayed(dba)
    archive(runtime)
    assert rows(dba, "archived_transitions") == 1
    approval(client, project, "A-1")
    with pytest.raises(psycopg.Error):
        dba.execute(statement)  # type: ignore[call-overload]
    assert (rows(dba, "archived_instances"), rows(dba, "workflow_instances")) == (1, 1)


def test_what_lives_cannot_be_put_into_the_archive_by_hand(client: Client, project: str, dba: Dba) -> None:
    client.create("story", "S-1", project=project)
    with pytest.raises(psycopg.errors.RestrictViolation, match="only ended instances"):
        dba.execute("INSERT INTO archived_instances SELECT i.*, now() FROM workflow_instances i")


def test_another_row_than_the_one_that_stands_is_not_taken(client: Client, project: str, dba: Dba) -> None:
    approval(client, project, "A-1")
    dba.execute("BEGIN")
    dba.execute("INSERT INTO archived_instances SELECT i.*, now() FROM workflow_instances i")
    with pytest.raises(psycopg.errors.RestrictViolation):
        dba.execute(
            "INSERT INTO archived_transitions SELECT t.* FROM (SELECT (jsonb_populate_record(t,"
            ' \'{"triggered_by": "mallory"}\')).* FROM workflow_transitions t) t'
        )
    dba.execute("ROLLBACK")


def test_an_instance_does_not_leave_without_its_history(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    made = approval(client, project, "A-1")
    expire_timers(dba)
    dba.execute("BEGIN")
    dba.execute("INSERT INTO archived_instances SELECT i.*, now() FROM workflow_instances i WHERE id = %s", (made,))
    dba.execute("INSERT INTO archived_transitions SELECT * FROM workflow_transitions WHERE workflow_id = %s", (made,))
    dba.execute("DELETE FROM trigger_requests WHERE workflow_id = %s", (made,))
    dba.execute("DELETE FROM effects WHERE workflow_id = %s", (made,))
    dba.execute("DELETE FROM workflow_instances WHERE id = %s", (made,))
    with pytest.raises(psycopg.errors.RestrictViolation, match="only partly archived"):
        dba.execute("COMMIT")
    assert (rows(dba, "workflow_instances"), rows(dba, "archived_instances")) == (1, 0)


def test_every_table_that_names_instances_is_known_to_the_archive(dba: Dba) -> None:
    """A new table that references an instance must say what becomes of its rows."""
    (body,) = dba.execute("SELECT prosrc FROM pg_proc WHERE proname = 'archive'").fetchone() or ("",)
    naming = {
        row[0]
        for row in dba.execute(
            "WITH RECURSIVE named (rel) AS (SELECT 'workflow_instances'::regclass::oid UNION"
            " SELECT c.conrelid FROM pg_constraint c JOIN named n ON c.confrelid = n.rel WHERE c.contype = 'f')"
            " SELECT c.relname FROM named JOIN pg_class c ON c.oid = rel JOIN pg_namespace s ON s.oid = c.relnamespace"
            " WHERE s.nspname = 'interlock'"
        )
    }
    assert {table for table in naming if table not in body} == {
        *("circuit_breakers", "breaker_configurations"),  # a breaker never ends
        *("operators", "deprecations", "deprecation_uses", "api_tokens", "api_token_uses"),  # what gave power stays
        "handovers",  # of what is frozen, which does not end
    }


def test_what_is_changed_in_the_archive_is_named(runtime: Runtime, client: Client, project: str, dba: Dba) -> None:
    made = client.create("supervised_worker", "V-1", project=project)["id"]
    applied(client, made, "terminate")
    relayed(dba)
    assert archive(runtime).instances == 1
    with unprotected(dba, "archived_transitions"):
        dba.execute("UPDATE archived_transitions SET triggered_by = 'mallory'")
    (problem,) = verify.verify(runtime.database).problems
    assert (problem.instance, problem.seq) == (str(made), 1)
    with unprotected(dba, "archived_transitions"):
        dba.execute("DELETE FROM archived_transitions")
    problems = verify.verify(runtime.database).problems
    assert {each.instance for each in problems} == {str(made)}
    assert [each.message.split(",")[0] for each in problems] == ["made 1 moves", "stands in 'TERMINATED'"]
