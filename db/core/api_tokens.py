"""API tokens: which are in force, for whom, and when each was last used (docs/spec/token.md)."""

from collections.abc import Collection
from datetime import datetime
from typing import TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, Engine

from interlock.db.fast_path import all_rows, rows
from interlock.db.schema import in_schema
from interlock.db.statements import queries
from interlock.workflows.machines.governance.api_token import Role

sql = queries(__file__)

_NOW = "t.state = 'active' AND (t.expires_at IS NULL OR t.expires_at > now())"
# By an index on the whole digest: what is found, and what is not, costs the same.
_FIND = in_schema(f"""
SELECT t.secret_sha256 AS digest, t.token_id, t.name, t.role, t.projects,
       u.last_used_at IS NULL OR u.last_used_at < now() - interval '1 minute' AS unnoted
  FROM interlock.api_tokens t LEFT JOIN interlock.api_token_uses u USING (token_id)
 WHERE t.secret_sha256 = ANY(%(digests)s::bytea[]) AND {_NOW}
""")  # noqa: S608 - a constant
_IN_FORCE = in_schema(f"""
SELECT t.token_id FROM interlock.api_tokens t
 WHERE t.token_id = ANY(%(ids)s::uuid[]) AND {_NOW}
""")  # noqa: S608 - a constant
_NOTE_USE = in_schema("""
INSERT INTO interlock.api_token_uses AS u (token_id, last_used_at)
SELECT id, now() FROM unnest(%(ids)s::uuid[]) AS id ORDER BY id
    ON CONFLICT (token_id) DO UPDATE SET last_used_at = now() WHERE u.last_used_at < now() - interval '1 minute'
RETURNING token_id
""")
_COUNT = in_schema("SELECT count(*) FROM interlock.api_tokens")


class FoundToken(TypedDict):
    """A token in force. `projects`: None for all; `unnoted`: its use was not noted within the last minute."""

    digest: bytes
    token_id: UUID
    name: str
    role: Role
    projects: list[str] | None
    unnoted: bool


class TokenRow(TypedDict):
    """A token as its history says: who acts with it, as what, where; who issued it, why; and its end.

    `state`: also `expired` for one whose time is over and whose event is still to come. `entity_id`: its instance's
    name. `last_used_at`: to the minute.
    """

    token_id: UUID
    entity_id: str
    state: str
    name: str
    role: Role
    projects: list[str] | None
    issued_by: str
    reason: str
    issued_at: datetime
    expires_at: datetime | None
    ended_at: datetime | None
    ended_by: str | None
    last_used_at: datetime | None


def find(statements: Engine, digests: Collection[bytes]) -> dict[bytes, FoundToken]:
    """The tokens in force whose secrets have these SHA-256, by that.

    Args:
        statements: the engine for single statements.
        digests: 32 bytes each.
    """
    found = cast(list[FoundToken], all_rows(statements, _FIND, {"digests": list(digests)}))
    return {bytes(each["digest"]): each for each in found}


def in_force(statements: Engine, token_ids: Collection[UUID]) -> set[UUID]:
    """Those of some tokens that are in force.

    Args:
        statements: the engine for single statements.
        token_ids: the tokens.
    """
    return {row["token_id"] for row in all_rows(statements, _IN_FORCE, {"ids": list(token_ids)})}


def note_use(statements: Engine, token_ids: Collection[UUID]) -> None:
    """Note that tokens are in use, unless that was noted within the last minute."""
    all_rows(statements, _NOTE_USE, {"ids": list(token_ids)})


def count(connection: Connection) -> int:
    """How many tokens there ever were."""
    return int(connection.exec_driver_sql(_COUNT).scalar_one())


def listed(
    connection: Connection,
    *,
    name: str | None = None,
    token_id: UUID | None = None,
    project: str | None = None,
    ended: bool = False,
) -> list[TokenRow]:
    """Issued tokens, oldest first.

    Args:
        connection: a transaction.
        name, token_id: only those of a name, only one.
        project: only those that are good for a project.
        ended: those too that were revoked or have expired.
    """
    given = {"name": name, "id": token_id, "project": project, "ended": ended}
    return cast(list[TokenRow], rows(connection, sql("listed"), given))
