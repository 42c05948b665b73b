"""The Redis stream of all events: its name, and the ids of its entries."""

STREAM = "interlock:events"


def entry_id(order: tuple[int, int]) -> str:
    """The id of the entry of an event: its transaction id as cursors name it, and its position."""
    return f"{order[0]}-{order[1]}"
