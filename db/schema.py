"""The schema that everything of an installation is in: `INTERLOCK_SCHEMA`, `interlock` where it is not set.

SQL here names everything with its schema and is written for the default (`interlock.tasks`), so that it can be read,
and pasted into psql; `in_schema` puts the chosen schema in its place. No statement depends on a search_path: not a
caller's, in whose transaction it may run, nor a pooler's. Tables are declared when they are imported, so the variable
is read then: a process serves one schema.
"""

import os
import re
from zlib import crc32

from sqlalchemy import func
from sqlalchemy.dialects.postgresql.base import RESERVED_WORDS

from interlock.workflows.errors import BadInput

VARIABLE, DEFAULT = "INTERLOCK_SCHEMA", "interlock"
_PLAIN = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,49}")
_SHARED = ("public", "information_schema")
_NAMED = re.compile(rf"\b{DEFAULT}(?=\.[a-z_%']|'::regnamespace)")


def _chosen() -> str:
    name = os.environ.get(VARIABLE) or DEFAULT
    if not _PLAIN.fullmatch(name) or name in RESERVED_WORDS or name in _SHARED:
        raise BadInput(
            f"{VARIABLE}: {name!r} can be no schema of Interlock's. Lower-case letters, digits and _, 50 at most, no "
            "reserved word, not public"
        )
    return name


SCHEMA = _chosen()
functions = getattr(func, SCHEMA)  # `functions.bounded(…)`: a function of ours in an expression of SQLAlchemy's


def in_schema(statement: str) -> str:
    """A statement that was written for the schema `interlock`, for the chosen one."""
    return statement if SCHEMA == DEFAULT else _NAMED.sub(SCHEMA, statement)


def lock_number(number: int) -> int:
    """The number of an advisory lock: these are the whole database's, and installations do not wait for each other."""
    return (number + crc32(SCHEMA.encode())) & 0x7FFF_FFFF
