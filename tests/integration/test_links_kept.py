"""A link stays, in force or waived: PostgreSQL refuses to change or delete it otherwise, and records each change."""

from typing import Any

import psycopg
import pytest
from psycopg.errors import RestrictViolation

from interlock.workers.audit.verify import verify
from interlock.workers.overrides.tasks import unblock_task
from interlock.workers.overrides.transaction import OverrideOrder
from tests.rights import grant
from tests.running import GATED_PAIR, Stage

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM workflow_links WHERE source_id = %(b)s AND role = 'depends_on'",
        "UPDATE workflow_links SET role = 'waived', inverse = 'waived_by' WHERE source_id = %(b)s",
        "UPDATE workflow_links SET target_id = %(g)s WHERE source_id = %(b)s",
    ],
)
def test_no_link_is_deleted_or_changed_by_sql(stage: Stage, dba: Dba, change: str) -> None:
    stage.submit(*GATED_PAIR)
    with pytest.raises(RestrictViolation, match=r"depends_on of .* cannot be deleted or changed"):
        dba.execute(change.encode(), stage.ids)
    assert verify(stage.runtime).ok


def test_each_link_that_a_statement_adds_to_an_older_instance_is_recorded_as_a_change(stage: Stage, dba: Dba) -> None:
    """Two of one source follow each other in its chain; one of an instance that the transaction makes is none."""
    stage.submit(*GATED_PAIR)
    with dba.transaction():
        born = dba.execute(
            "INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project,"
            " context, created_by) SELECT gen_random_uuid(), workflow_type, definition_version, 'pending', 'born',"
            " project, context, created_by FROM workflow_instances WHERE id = %(b)s RETURNING id",
            stage.ids,
        ).fetchone()
        assert born is not None
        dba.execute(
            "INSERT INTO workflow_links (source_id, role, inverse, target_id)"
            " VALUES (%(b)s, 'x', 'y', %(a)s), (%(new)s, 'x', 'y', %(a)s), (%(b)s, 'x', 'y', %(g)s)",
            {**stage.ids, "new": born[0]},
        )
    noted = dba.execute(
        "SELECT source_id, number, change FROM link_changes WHERE role = 'x' ORDER BY number"
    ).fetchall()
    assert noted == [(stage.ids["b"], 1, "added"), (stage.ids["b"], 2, "added")]


def test_nobody_writes_a_change_of_a_link_that_did_not_change(stage: Stage, dba: Dba) -> None:
    stage.submit(*GATED_PAIR)
    with pytest.raises(RestrictViolation, match="written by PostgreSQL itself"):
        dba.execute(
            "INSERT INTO link_changes SELECT source_id, 1, 'removed', role, inverse, target_id, now(), now(), 'x', ''"
            " FROM workflow_links WHERE source_id = %s LIMIT 1",
            (stage.ids["b"],),
        )


def test_an_override_waives_a_link_and_the_change_is_recorded_and_kept(stage: Stage, dba: Dba) -> None:
    stage.submit(*GATED_PAIR)
    stage.start()
    grant(stage.client, "ann")
    unblock_task(stage.runtime, str(stage.ids["b"]), OverrideOrder("ann", "seen to it myself"))
    changes = dba.execute(
        "SELECT number, change, role FROM link_changes WHERE source_id = %s ORDER BY number", (stage.ids["b"],)
    )
    assert changes.fetchall() == [(1, "removed", "depends_on"), (2, "added", "waived")]
    for change in ("UPDATE link_changes SET login = 'x'", "DELETE FROM link_changes"):
        with pytest.raises(RestrictViolation, match="append-only"):
            dba.execute(change.encode())
    assert verify(stage.runtime).ok
