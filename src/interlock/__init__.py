"""Durable state machines for software agents, on Celery and PostgreSQL.

The public API is what `__all__` lists. Each name is imported when it is first used, so that importing this package
costs nothing and changes nothing in its host: no Celery signal, no logging, no connection.
"""

TYPE_CHECKING = False  # as `typing` has it, which the shim of every command need not import
if TYPE_CHECKING:
    from interlock.workers.client.async_client import AsyncClient
    from interlock.workers.client.client import Client
    from interlock.workers.client.committed_event import CommittedEvent
    from interlock.workers.client.receipts import NotSettled, Receipt, VersionConflict
    from interlock.workers.effects.declared import EffectCall, EffectCancelled
    from interlock.workers.engine.trigger_request import Firing
    from interlock.workers.pool.agent import Agent
    from interlock.workflows.decide import decide
    from interlock.workflows.definition import ApprovalPoint, Deadline, Definition, Effect, Guard, T
    from interlock.workflows.effects import effect, webhook
    from interlock.workflows.errors import InterlockError
    from interlock.workflows.guard_context import Case
    from interlock.workflows.versioning.validate import check

__all__ = [
    "Agent",
    "ApprovalPoint",
    "AsyncClient",
    "Case",
    "Client",
    "CommittedEvent",
    "Deadline",
    "Definition",
    "Effect",
    "EffectCall",
    "EffectCancelled",
    "Firing",
    "Guard",
    "InterlockError",
    "NotSettled",
    "Receipt",
    "T",
    "VersionConflict",
    "check",
    "decide",
    "effect",
    "webhook",
]

_HOME = {
    "Agent": "interlock.workers.pool.agent",
    "ApprovalPoint": "interlock.workflows.definition",
    "AsyncClient": "interlock.workers.client.async_client",
    "Case": "interlock.workflows.guard_context",
    "Client": "interlock.workers.client.client",
    "CommittedEvent": "interlock.workers.client.committed_event",
    "Deadline": "interlock.workflows.definition",
    "Definition": "interlock.workflows.definition",
    "Effect": "interlock.workflows.definition",
    "EffectCall": "interlock.workers.effects.declared",
    "EffectCancelled": "interlock.workers.effects.declared",
    "Firing": "interlock.workers.engine.trigger_request",
    "Guard": "interlock.workflows.definition",
    "InterlockError": "interlock.workflows.errors",
    "NotSettled": "interlock.workers.client.receipts",
    "Receipt": "interlock.workers.client.receipts",
    "T": "interlock.workflows.definition",
    "VersionConflict": "interlock.workers.client.receipts",
    "check": "interlock.workflows.versioning.validate",
    "decide": "interlock.workflows.decide",
    "effect": "interlock.workflows.effects",
    "webhook": "interlock.workflows.effects",
}


def __getattr__(name: str) -> object:
    """A public name, imported from where it is defined (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  (as above)

    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
