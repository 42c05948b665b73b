"""The schema that holds everything of an installation: `INTERLOCK_SCHEMA`, by default `interlock`.

SQL names everything with the default schema (`interlock.tasks`), so that it can be read and pasted into psql;
`in_schema` replaces that by the chosen one. No statement depends on a search_path, since it may run in a caller's
transaction or behind a pooler. Tables are declared at import, so the variable is read then: a process serves one
schema.
"""

import os
import re
from zlib import crc32

from interlock.workflows.errors import BadInput

VARIABLE, DEFAULT = "INTERLOCK_SCHEMA", "interlock"
_PLAIN = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,49}")
_SHARED = ("public", "information_schema")
_NAMED = re.compile(
    rf"\b{DEFAULT}(?=\.[a-z_%']|'::regnamespace|_(?:owner|engine|client|auditor)\b)|(?<=\bSCHEMA ){DEFAULT}\b"
)


def _chosen() -> str:
    name = os.environ.get(VARIABLE) or DEFAULT
    if not _PLAIN.fullmatch(name) or name in _SHARED or (name != DEFAULT and _is_reserved(name)):
        raise BadInput(
            f"{VARIABLE}: {name!r} is not a valid schema. Use lower-case letters, digits and _, at most 50, not a "
            "reserved word of SQL, and not public"
        )
    return name


def _is_reserved(name: str) -> bool:
    # The supervisor needs SQLAlchemy for nothing else, and most installations have the default.
    from sqlalchemy.dialects.postgresql.base import RESERVED_WORDS  # noqa: PLC0415

    return name in RESERVED_WORDS


SCHEMA = _chosen()
# PostgreSQL's roles for the schema (docs/security.md): who owns it, runs it, fires triggers in it, reads it.
ROLES = OWNER, ENGINE, CLIENT, AUDITOR = tuple(f"{SCHEMA}_{kind}" for kind in ("owner", "engine", "client", "auditor"))


def in_schema(statement: str) -> str:
    """Replace the schema `interlock`, and the roles named after it, in a statement by the chosen schema."""
    return statement if SCHEMA == DEFAULT else _NAMED.sub(SCHEMA, statement)


def lock_number(number: int) -> int:
    """The number of an advisory lock, which depends on the schema: installations in one database share no locks."""
    return (number + crc32(SCHEMA.encode())) & 0x7FFF_FFFF
