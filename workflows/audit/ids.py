"""Public ids of events: `evt_` and the UUID's bits as a ULID."""

from uuid import UUID

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # base 32 without I, L, O, U (ULID specification)


def event_name(event_id: UUID) -> str:
    """`evt_` and 26 characters, which sort in the same order as the UUIDv7 that they encode."""
    bits = event_id.int
    return "evt_" + "".join(CROCKFORD[bits >> shift & 31] for shift in range(125, -1, -5))


def event_uuid(name: str) -> UUID:
    """The UUID of an event's public id. Raises `ValueError` if `name` is not one."""
    digits = name.removeprefix("evt_")
    if len(digits) != 26 or not name.startswith("evt_"):
        raise ValueError(f"{name!r} is not an event id: evt_ and 26 characters")
    bits = 0
    for digit in digits:
        bits = bits << 5 | CROCKFORD.index(digit)
    return UUID(int=bits)
