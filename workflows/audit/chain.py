"""The hash chain of an instance's history, computed as PostgreSQL does (`interlock.event_hash`).

Each hash is SHA-256 over the previous hash and the event's fields. Each field is preceded by its length in bytes (four
bytes, big-endian; -1 for NULL), so that different events never give the same input. The first event's previous hash is
the hash of the instance's birth.
"""

from collections.abc import Iterable
from hashlib import sha256
from struct import Struct

LENGTH = Struct(">i")
NULL = LENGTH.pack(-1)
SHORT = tuple(LENGTH.pack(length) for length in range(256))  # a look-up takes half the time of packing


def digest(previous: bytes, fields: Iterable[str | None]) -> bytes:
    """The hash (32 bytes) that follows `previous` in a chain.

    Args:
        previous: the previous hash; empty for an instance's birth.
        fields: the event's (or the birth's) fields in the order of the SQL function: instants as microseconds since
            1970 in decimal, JSON as PostgreSQL prints jsonb.
    """
    return digest_bytes(previous, (None if each is None else each.encode() for each in fields))


def digest_bytes(previous: bytes, fields: Iterable[bytes | None]) -> bytes:
    """As `digest`, for fields encoded in UTF-8."""
    framed = [
        NULL if each is None else (SHORT[len(each)] if len(each) < len(SHORT) else LENGTH.pack(len(each))) + each
        for each in fields
    ]
    return sha256(previous + b"".join(framed)).digest()
