"""PostgreSQL by itself holds a migration to the rules, raw SQL too; and what was tampered with is seen."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest
from psycopg.errors import CheckViolation, InsufficientPrivilege, RestrictViolation

from interlock.db.audit import verify
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from tests import parcels
from tests.driving import applied
from tests.migrating import sound
from tests.parcels import born
from tests.tampering import unprotected

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    return parcels.recorded(make_runtime)


EVENT = """
INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger, triggered_by,
                                  severity, metadata)
VALUES (gen_random_uuid(), %(id)s, %(seq)s, %(to)s, %(source)s, %(dest)s, 'definition.migrate', %(by)s, 'warning',
        jsonb_build_object('from_version', %(old)s::text, 'reason', %(reason)s::text))"""
FOLLOW = """
UPDATE workflow_instances SET definition_version = %(to)s, current_state = %(dest)s, version = %(seq)s
 WHERE id = %(id)s"""
RIGHT = {"seq": 2, "old": "1.0.0", "to": "1.1.0", "source": "sent", "dest": "sent", "by": "ann", "reason": "so"}


@pytest.fixture
def sent(client: Client, runtime: Runtime, project: str) -> UUID:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    applied(client, parcel, "send")
    return parcel


def raw(dba: Dba, parcel: UUID, *statements: str, **changed: Any) -> None:
    given: Mapping[str, Any] = RIGHT | {"id": parcel} | changed
    with dba.transaction():
        for statement in statements:
            dba.execute(statement, given)  # type: ignore[call-overload]


def test_raw_sql_may_do_what_a_migration_does(runtime: Runtime, dba: Dba, sent: UUID) -> None:
    raw(dba, sent, EVENT, FOLLOW)
    sound(runtime)


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"by": "bob"}, "not an operator"),
        ({"by": None}, "not an operator"),
        ({"reason": ""}, "no reason"),
        ({"old": "1.1.0"}, r"under version 1\.0\.0"),
        ({"to": "1.0.0"}, r"under version 1\.0\.0"),
        ({"to": "9.9.9"}, "no such state"),
        ({"source": "packed", "dest": "packed"}, "it stands in sent"),
        ({"dest": "packed"}, r"has sent too"),
        ({"dest": "delivered"}, "ends there"),
        ({"to": "2.0.0", "dest": "delivered"}, "ends there"),
        ({"to": "2.0.0"}, "no such state"),
        ({"seq": 3}, "no event before"),
    ],
)
def test_an_illegal_migration_is_refused_to_everyone(
    dba: Dba, sent: UUID, changed: dict[str, Any], says: str, role: str
) -> None:
    dba.execute(f"SET session_replication_role = {role}")
    with pytest.raises((CheckViolation, InsufficientPrivilege, RestrictViolation), match=says):
        raw(dba, sent, EVENT, FOLLOW, **changed)


def test_what_has_ended_is_not_migrated(client: Client, dba: Dba, sent: UUID) -> None:
    applied(client, sent, "deliver")
    with pytest.raises(CheckViolation, match="delivered is terminal"):
        raw(dba, sent, EVENT, FOLLOW, seq=3, source="delivered", dest="delivered")


def test_version_and_event_come_together_or_not_at_all(dba: Dba, sent: UUID) -> None:
    with pytest.raises(RestrictViolation, match="identity, definition and past"):
        raw(dba, sent, FOLLOW)
    with pytest.raises(CheckViolation, match="its state did not move"):
        raw(dba, sent, EVENT)
    with pytest.raises(CheckViolation, match="without its history row"):
        raw(dba, sent, EVENT, "UPDATE workflow_instances SET version = %(seq)s WHERE id = %(id)s")
    with pytest.raises((CheckViolation, RestrictViolation)):
        raw(dba, sent, EVENT, FOLLOW.replace("%(to)s", "'2.0.0'"), dest="packed")


def test_no_move_of_the_old_version_follows_a_migration(dba: Dba, sent: UUID) -> None:
    old_move = EVENT.replace("%(to)s", "'1.0.0'").replace("%(seq)s", "3").replace("definition.migrate", "deliver")
    with pytest.raises(CheckViolation, match="illegal move"):
        raw(dba, sent, EVENT, old_move.replace("%(dest)s", "'delivered'"))


def test_tampering_with_a_migration_is_seen(runtime: Runtime, dba: Dba, sent: UUID, project: str) -> None:
    raw(dba, sent, EVENT, FOLLOW)
    with unprotected(dba, "workflow_instances"):
        dba.execute("UPDATE workflow_instances SET definition_version = '3.0.0' WHERE id = %s", (sent,))
    (said,) = [each.message for each in verify.verify(runtime.database).problems]
    assert said == "is under 3.0.0, but history ends under 1.1.0"
    with unprotected(dba, "workflow_instances", "workflow_transitions"):
        dba.execute("UPDATE workflow_instances SET definition_version = '1.1.0' WHERE id = %s", (sent,))
        dba.execute(
            'UPDATE workflow_transitions SET metadata = metadata || \'{"from_version": "2.0.0"}\' WHERE seq = 2'
        )
    says = [each.message for each in verify.verify(runtime.database).problems]
    assert any("under 1.0.0" in each for each in says)
    assert any("its hash is not that of its content" in each for each in says)
