"""Queries nodes through the broker: which nodes answer, which queues they consume, how many messages wait."""

from collections.abc import Mapping

from celery import Celery

ANSWER_SECONDS = 1.0
PATIENCE_SECONDS = 4.0  # a node without a pool answers only between two tasks


def queues_by_node(
    app: Celery, *, needed: frozenset[str] = frozenset(), expected: bool = True
) -> Mapping[str, frozenset[str]]:
    """Node -> the queues it consumes, for each node that answers.

    Asks a second time, for 4 s, if nobody answers although `expected`, or if no node consumes a `needed` queue.

    Raises:
        OperationalError, OSError: the broker does not answer. Its transport may raise other errors.
    """
    found = _inspect(app, ANSWER_SECONDS)
    lacking = needed - frozenset().union(*found.values()) if found else expected
    if lacking:
        found |= _inspect(app, PATIENCE_SECONDS)
    return found


def waiting(app: Celery, queue: str) -> int:
    """How many messages wait in a queue. Raises the same errors as `queues_by_node`."""
    with app.connection_for_read() as connection:
        # Declare the queue as the nodes do: a passive declare in kombu does not find a Redis queue with a key prefix.
        return int(app.amqp.queues[queue].bind(connection.default_channel).queue_declare().message_count)


def _inspect(app: Celery, seconds: float) -> dict[str, frozenset[str]]:
    replies = app.control.inspect(timeout=seconds).active_queues() or {}
    return {node: frozenset(each["name"] for each in queues or ()) for node, queues in replies.items()}
