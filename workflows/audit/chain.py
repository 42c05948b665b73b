"""The hash chain of an instance's history, as PostgreSQL computes it (`interlock_event_hash`), computed again.

SHA-256 over the previous hash and the event's fields, each with its length in bytes before it (four bytes, big-endian;
-1 for NULL): no two different events read the same. The first event's previous hash is that of the instance's birth.
"""

from collections.abc import Iterable
from hashlib import sha256
from struct import Struct

LENGTH = Struct(">i")
NULL = LENGTH.pack(-1)
SHORT = tuple(LENGTH.pack(length) for length in range(256))  # a look-up costs half of what packing does


def digest(previous: bytes, fields: Iterable[str | None]) -> bytes:
    """The 32 bytes that follow `previous` in a chain.

    Args:
        previous: the hash before; empty for an instance's birth.
        fields: the event's (or the birth's) fields in the order of the SQL function, instants as microseconds since
            1970 in decimal, JSON as PostgreSQL prints its jsonb.
    """
    return digest_bytes(previous, (None if each is None else each.encode() for each in fields))


def digest_bytes(previous: bytes, fields: Iterable[bytes | None]) -> bytes:
    """The same of fields in UTF-8."""
    framed = [
        NULL if each is None else (SHORT[len(each)] if len(each) < len(SHORT) else LENGTH.pack(len(each))) + each
        for each in fields
    ]
    return sha256(previous + b"".join(framed)).digest()
