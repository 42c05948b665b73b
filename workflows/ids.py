"""Public ids of events: `evt_` and the UUID's bits as a ULID."""

from uuid import UUID

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # base 32 without I, L, O, U (ULID specification)


def event_name(event_id: UUID) -> str:
    """`evt_` followed by 26 characters; sorts as the UUIDv7 it is made of does."""
    bits = event_id.int
    return "evt_" + "".join(CROCKFORD[bits >> shift & 31] for shift in range(125, -1, -5))
