"""The sweep on stuck instances: stores them for `doctor` and the gauges, and sends one notice of new ones."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.db.fast_path import Row
from interlock.db.operations import stuck
from interlock.workers.engine.creation import intent
from interlock.workers.operations.stuck.detector import Stuck, survey
from interlock.workers.operations.stuck.words import span
from interlock.workers.runtime import Runtime
from interlock.workflows.definition import Effect
from interlock.workflows.output.escaping import shown

NAMED = 20  # at most so many are named in a notice


def report(runtime: Runtime) -> tuple[int, Sequence[Row]]:
    """Find stuck instances, store them, and give notice of new ones.

    Returns:
        How many are stuck, and the effects that can run after this call: one notice, or none.
    """
    _, found = survey(runtime)
    with transaction(runtime.database) as connection:
        fresh = stuck.replace_findings(connection, [asdict(each) for each in found])
        news = [each for each in found if each.workflow_id in fresh]
        wanted = [_notice(news)] if news and runtime.settings.notify_urls else []
        return len(found), effects.intend(connection, wanted)


def _notice(news: Sequence[Stuck]) -> dict[str, Any]:
    first, lines = news[0], [_line(each) for each in news[:NAMED]]
    if len(news) > NAMED:
        lines.append(f"and {len(news) - NAMED} more: interlock stuck")
    payload = {
        "type": first.workflow_type,
        "entity_id": first.entity_id,
        "state": f"stuck in {first.state}" + (f", and {len(news) - 1} more" if len(news) > 1 else ""),
        "message": "\n".join(lines),
    }
    return intent(Effect("notice"), workflow_id=first.workflow_id, version=first.version, metadata=payload)


def _line(each: Stuck) -> str:
    name = f"{each.workflow_type} {each.entity_id}"
    return shown(f"{name} has been {each.state} for {span(each.seconds)}: {each.reason}. {each.command}")
