"""Definitions with effects of their own, as a user's module has them."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from interlock.workers.effects.declared import EffectCall
from interlock.workflows.definition import Definition, Effect, T
from interlock.workflows.effects import effect
from tests.small_machines import small_machine


def _hang(call: EffectCall) -> None:
    """In a worker's process: hang for ever in the first attempt, and note each in the file that HANGS names."""
    with Path(os.environ["HANGS"]).open("a") as noted:
        noted.write(f"{call.attempt}\n")
    if call.attempt == 1:
        threading.Event().wait()


doing: dict[str, Callable[[EffectCall], Any]] = {"deploy": _hang, "watch": lambda _: ()}  # or what a test has them do
calls: list[EffectCall] = []
undone = threading.Event()  # an async effect was cancelled


@effect("tests_deploy", retries=2, timeout=1.0)
def deploy(call: EffectCall) -> Mapping[str, Any] | None:
    """Do what the test says."""
    calls.append(call)
    result: Mapping[str, Any] | None = doing["deploy"](call)
    return result


async def _pause(each_seconds: Iterable[float]) -> None:
    try:
        for seconds in each_seconds:
            await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=seconds)
    except asyncio.CancelledError:
        undone.set()
        raise


@effect("tests_watch", timeout=30.0, heartbeat=3.0)
async def watch(call: EffectCall) -> Mapping[str, Any]:
    """Do what the test says, while the loop runs."""
    calls.append(call)
    await _pause(doing["watch"](call))
    return {"watched": call.instance.entity_id}


@effect("tests_wait")
async def wait(call: EffectCall) -> None:
    """The same, and owe no heartbeat."""
    await _pause(doing["wait"](call))


@effect("tests_tell", queue="gates")
def tell(call: EffectCall) -> None:
    """Tell nobody the outcome."""
    calls.append(call)


RELEASE = small_machine(
    "release",
    "A release, deployed by an effect of its own.",
    "planned deploying watching | live failed",
    T("start", "planned", "deploying", effects=(Effect("tests_deploy", done="deployed", failed="give_up"),)),
    T("deployed", "deploying", "watching", by="effect", effects=(WATCH := Effect("tests_watch", "well", "give_up"),)),
    T("well", "watching", "live", by="effect", effects=(Effect("tests_tell"),)),
    T("give_up", ("deploying", "watching"), "failed", by="effect", severity="error"),
    T("abort", ("deploying", "watching"), "failed"),
    T("wait", "planned", "deploying", effects=(Effect("tests_wait", done="deployed", failed="give_up"),)),
    T("skip", "planned", "watching", effects=(WATCH,)),
)

WORKFLOWS: Mapping[tuple[str, str], Definition] = {("release", "1.0.0"): RELEASE}
