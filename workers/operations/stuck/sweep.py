"""What the sweep does with what it finds: keep it for `doctor` and the gauges, and give notice of it once."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import RowMapping
from uuid_utils.compat import uuid7

from db import effects, stuck
from db.connect import transaction
from workers.runtime import Runtime
from workers.stuck.facts import printable, span
from workers.stuck.look import Stuck, look

NAMED = 20  # in one notice


def report(runtime: Runtime) -> tuple[int, Sequence[RowMapping]]:
    """Look, keep what was found, and give notice of what is new in it.

    Returns:
        How much is stuck, and the effects that can be run once this returns: one notice, or none.
    """
    found = look(runtime)
    with transaction(runtime.database) as connection:
        fresh = stuck.keep(connection, [asdict(each) for each in found])
        news = [each for each in found if each.workflow_id in fresh]
        wanted = [_notice(news)] if news and runtime.settings.notify_urls else []
        return len(found), effects.intend(connection, wanted)


def _notice(news: Sequence[Stuck]) -> dict[str, Any]:
    first, lines = news[0], [_line(each) for each in news[:NAMED]]
    if len(news) > NAMED:
        lines.append(f"and {len(news) - NAMED} more: interlock stuck")
    return {
        "id": uuid7(),
        "workflow_id": first.workflow_id,
        "version": first.version,
        "name": "notice",
        "payload": {
            "type": first.workflow_type,
            "entity_id": first.entity_id,
            "state": f"stuck in {first.state}" + (f", and {len(news) - 1} more" if len(news) > 1 else ""),
            "says": "\n".join(lines),
        },
        "done_trigger": None,
        "failed_trigger": None,
        "exclusive": None,
    }


def _line(each: Stuck) -> str:
    name = f"{each.workflow_type} {each.entity_id}"
    return printable(f"{name} has been {each.state} for {span(each.seconds)}: {each.reason}. {each.command}")
