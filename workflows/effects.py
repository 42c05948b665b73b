"""The effects that definitions may name: Interlock's own, and those that users declare (docs/spec/effects.md)."""

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.workflows.errors import BadInput, InvalidDefinition
from interlock.workflows.faults import Fault
from interlock.workflows.input.names import is_name
from interlock.workflows.spelling import meant

if TYPE_CHECKING:
    from interlock.workflows.definition import Definition, Effect

SHIPPED = frozenset(
    {
        "notice",
        "run_gate",
        "validate_patch",
        "apply_patch",
        "commit_patch",
        "restore_worktree",
        "land_workstream",
        "archive_workstream",
        "find_culprit",
        "roll_back_culprit",
        "roll_back_patch",
    }
)
LONG = frozenset(
    {"run_gate", "find_culprit", "roll_back_culprit", "roll_back_patch"}
)  # they run gates, which may take hours
TIMEOUT_SECONDS = 900.0
CALL_SECONDS = 30.0
QUEUE, LONG_QUEUE = "effects", "gates"
QUEUES = frozenset({QUEUE, LONG_QUEUE, "triggers", "sweeps", "evidence", "deliveries", "work"})  # Interlock's own
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
URL = re.compile(r"https?://[^\s/?#@]+([/?#]\S*)?")
SECRET = re.compile(r"(env|file|command):.+")
QUEUE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,49}")

Function = TypeVar("Function", bound=Callable[..., Any])
Key = str | Callable[[Mapping[str, Any]], str | None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an effect that is an HTTP call is sent.

    Attributes:
        url: of the endpoint, `https://…` or `http://…`.
        secrets: references to the secrets that sign it: `env:NAME`, `file:PATH` or `command:NAME`.
    """

    url: str
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeclaredEffect:
    """An effect that a user declared.

    Attributes:
        name: by which definitions name it.
        act: what is called with an `EffectCall`, or where an HTTP call is sent.
        retries: how often it is tried again; None: as often as the installation's INTERLOCK_MAX_ATTEMPTS allows.
        timeout_seconds: how long one attempt may take.
        queue: the Celery queue whose nodes run it.
        heartbeat_seconds: the longest time between two of its heartbeats; None: it need not send any.
        place: `FILE:LINE` where it is declared.
        module: in which it is declared.
        key: what limits on keys count it as: a field of its instance's context, or a function of that; None: nothing.
    """

    name: str
    act: Callable[..., Any] | Endpoint
    retries: int | None
    timeout_seconds: float
    queue: str
    heartbeat_seconds: float | None
    place: str
    module: str
    key: Key | None = None

    def max_attempts(self, default: int) -> int:
        """How often it is tried at most; `default` if it says nothing of it."""
        return default if self.retries is None else self.retries + 1


_DECLARED: dict[str, DeclaredEffect] = {}


def effect(
    name: str,
    *,
    retries: int | None = None,
    timeout: float = TIMEOUT_SECONDS,
    queue: str = QUEUE,
    heartbeat: float | None = None,
    key: Key | None = None,
) -> Callable[[Function], Function]:
    """Declare a function, sync or async, as the effect that definitions name `name` (EFFECT-1).

    A worker calls it with one argument, an `EffectCall`, after the commit of a move that asks for it. What it returns,
    a mapping or None, is the data of the trigger that tells its success. After an exception it is called again, with
    exponential backoff, and after the last attempt the trigger that tells its failure is fired.

    Args:
        name: at most 100 letters, digits and `_`. A definition names it: `Effect("deploy", done="deployed",
            failed="deploy_failed")`.
        retries: attempts after the first; default: one less than INTERLOCK_MAX_ATTEMPTS.
        timeout: seconds that an attempt may take. An async function is then cancelled, a sync one interrupted by
            `SoftTimeLimitExceeded`, and its process killed 30 s later.
        queue: the Celery queue whose nodes run it: `effects`, `gates`, or one of INTERLOCK_EFFECT_QUEUES.
        heartbeat: the longest time between two calls of `EffectCall.heartbeat`, in seconds. One that is silent for
            longer is taken to hang: it loses its lease, and another attempt begins. Default: it need not call it.
        key: what limits on keys count it as (LIMIT-3), a name of at most 100 characters: the field of its instance's
            context that has it, or a function that is called with that context and returns it, in the transaction of
            the move, so it must not do anything else. None, or a field that is missing: no key.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        InvalidDefinition: a value is not valid, the function cannot be called with one argument, or the name is taken.
            The message begins with its file and line.
    """

    def declare(function: Function) -> Function:
        place, module = _place(function), getattr(function, "__module__", "")
        _declare(DeclaredEffect(name, function, retries, timeout, queue, heartbeat, place, module, key))
        return function

    return declare


def webhook(
    name: str,
    url: str,
    *,
    secret: str | tuple[str, ...],
    retries: int | None = None,
    timeout: float = CALL_SECONDS,
    queue: str = QUEUE,
    key: Key | None = None,
) -> None:
    """Declare an HTTP call as the effect that definitions name `name` (EFFECT-11).

    A worker sends it as a POST, signed after Standard Webhooks: JSON with the instance's ids and states, its context,
    and the trigger with its data. Any answer of 2xx is a success; if it is a JSON object, that is the data of the
    trigger that tells it. Any other answer, or none, is a failure, and it is sent again.

    Args:
        name, retries, queue, key: as `effect` has them.
        url: where it is sent. Redirects are not followed.
        secret: where a worker finds the secret that signs it, which begins with `whsec_`: `env:NAME` (one of
            INTERLOCK_SECRETS_ENV), `file:PATH` (below INTERLOCK_SECRETS) or `command:NAME` (one of
            INTERLOCK_SECRETS_COMMANDS). While a secret is replaced, several: each signs it.
        timeout: seconds that the call may take.

    Raises:
        InvalidDefinition: a value is not valid, or the name is taken. The message begins with the file and line.
    """
    frame = sys._getframe(1)
    place, module = f"{frame.f_code.co_filename}:{frame.f_lineno}", str(frame.f_globals.get("__name__"))
    secrets = (secret,) if isinstance(secret, str) else tuple(secret)
    _declare(DeclaredEffect(name, Endpoint(url, secrets), retries, timeout, queue, None, place, module, key))


def _declare(new: DeclaredEffect) -> None:
    if wrong := [*_wrong(new)]:
        fault = Fault(f"the effect {new.name!r} is invalid: {'; '.join(wrong)}", new.place)
        raise InvalidDefinition(str(fault), [fault])
    _DECLARED[new.name] = new


def declared() -> Mapping[str, DeclaredEffect]:
    """The effects that were declared in this process, by name."""
    return MappingProxyType(_DECLARED)


def queue_of(name: str) -> str:
    """The Celery queue whose nodes run an effect of that name."""
    if own := _DECLARED.get(name):
        return own.queue
    return LONG_QUEUE if name in LONG else QUEUE


def limit_key_of(name: str, context: Mapping[str, Any]) -> str | None:
    """What limits on keys count an effect as; None: nothing.

    Args:
        name: the effect's.
        context: of its instance.

    Raises:
        BadInput: its declaration gives something else than a name of at most 100 characters, or its function raises.
            The message has nothing of the context, which may hold secrets.
    """
    own = _DECLARED.get(name)
    if own is None or own.key is None:
        return None
    if isinstance(own.key, str):
        what, key = (
            f"{own.place}: the limit key of the effect {name!r}, {own.key!r} of the context,",
            context.get(own.key),
        )
    else:
        what = f"{_place(own.key)}: the limit key of the effect {name!r}"
        try:
            key = own.key(context)
        except Exception as error:  # whatever the function raises; its text may quote the context
            raise BadInput(f"{what} cannot be made: its function raises {type(error).__name__}") from None
    if key is None or is_name(key):
        return key
    found = (
        f"a text of {len(key)} characters that is none" if isinstance(key, str) else f"of the type {type(key).__name__}"
    )
    raise BadInput(f"{what} must be a name of 1 to 100 characters, or None; it is {found}")


def require_queues(queues: Collection[str]) -> None:
    """Check that a node consumes the queue of each declared effect.

    Args:
        queues: those of the installation's settings, INTERLOCK_EFFECT_QUEUES.

    Raises:
        InvalidDefinition: no node does; the message begins with the effect's file and line.
    """
    for each in _DECLARED.values():
        if each.queue not in (QUEUE, LONG_QUEUE, *queues):
            raise InvalidDefinition(
                f"{each.place}: the effect {each.name!r} names the queue {each.queue!r}, which no node consumes: use "
                f"{QUEUE!r} or {LONG_QUEUE!r}, or add it to INTERLOCK_EFFECT_QUEUES"
            )


def problems(definition: "Definition") -> Iterator[Fault]:
    """What is wrong with the effects that a definition names (EFFECT-2)."""
    for each in definition.effects:
        if each.name in _DECLARED:
            if (each.done is None) != (each.failed is None):
                named, missing = ("done", "failed") if each.done else ("failed", "done")
                yield _at(each, f"names the trigger {named!r} that it tells, but not {missing!r}: name both or neither")
        elif each.name not in SHIPPED:
            known = sorted({*_DECLARED, *SHIPPED})
            near = meant(each.name, known)
            there = f"; did you mean {near!r}?" if near else f": {', '.join(known)}."
            cure = f'declare it with @effect("{each.name}") in a module of INTERLOCK_DEFINITIONS'
            yield _at(each, f"is none that is known here{there} To have one of your own, {cure}")


def _at(effect: "Effect", message: str) -> Fault:
    return Fault(f"the effect {effect.name!r} {message}", effect.place)


def _place(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _wrong(new: DeclaredEffect) -> Iterator[str]:
    if not isinstance(new.name, str) or not NAME.fullmatch(new.name):
        yield "its name must be at most 100 letters, digits and _, the first a letter"
        return
    if new.name in SHIPPED:
        yield "Interlock has an effect of that name; choose another"
    if (other := _DECLARED.get(new.name)) and other.place != new.place:
        yield f"{other.place} declares one of that name, too; rename one"
    if new.retries is not None and (type(new.retries) is not int or new.retries < 0):
        yield "retries must be a whole number, at least 0"
    if not _is_time(new.timeout_seconds):
        yield "timeout must be more than 0 seconds"
    if new.heartbeat_seconds is not None and not _is_time(new.heartbeat_seconds):
        yield "heartbeat must be more than 0 seconds"
    if not isinstance(new.queue, str) or not QUEUE_NAME.fullmatch(new.queue):
        yield "queue must be at most 50 lower-case letters, digits, _ and -, the first a letter"
    if new.key is not None and not callable(new.key) and not is_name(new.key):
        yield "key must be the name of a field of the context, or a function of the context"
    yield from _wrong_endpoint(new.act) if isinstance(new.act, Endpoint) else _wrong_signature(new.act)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def _wrong_endpoint(endpoint: Endpoint) -> Iterator[str]:
    if not isinstance(endpoint.url, str) or not URL.fullmatch(endpoint.url):
        yield "url must be http:// or https://, with a host, and without a user or password"
    if not endpoint.secrets or not all(isinstance(each, str) and SECRET.fullmatch(each) for each in endpoint.secrets):
        yield "secret must be env:NAME, file:PATH or command:NAME, or several of these, not the secret itself"


def _wrong_signature(function: Callable[..., Any]) -> Iterator[str]:
    if not inspect.isfunction(inspect.unwrap(function)):
        yield "it must be a function"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        yield "it must return its result, not yield"
    else:
        try:
            inspect.signature(function).bind(object())
        except TypeError:
            yield f"it is called with one argument, an EffectCall, but takes {inspect.signature(function)}"
