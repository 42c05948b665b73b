"""The hash chain of an instance's history, as PostgreSQL computes it (`interlock_event_hash`), computed again.

SHA-256 over the previous hash and the event's fields, each with its length in bytes before it (four bytes, big-endian;
-1 for NULL): no two different events read the same. The first event's previous hash is that of the instance's birth.
"""

from collections.abc import Iterable
from hashlib import sha256
from struct import Struct

LENGTH = Struct(">i")
NULL = LENGTH.pack(-1)


def field(value: str | None) -> bytes:
    """One length-prefixed field."""
    if value is None:
        return NULL
    encoded = value.encode()
    return LENGTH.pack(len(encoded)) + encoded


def digest(previous: bytes, fields: Iterable[str | None]) -> bytes:
    """The 32 bytes that follow `previous` in a chain.

    Args:
        previous: the hash before; empty for an instance's birth.
        fields: the event's (or the birth's) fields in the order of the SQL function, instants as microseconds since
            1970 in decimal, JSON as PostgreSQL prints its jsonb.
    """
    return sha256(previous + b"".join(map(field, fields))).digest()
