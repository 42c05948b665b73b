"""How the reasons why instances are stuck are worded, and the commands that they offer."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from interlock.workers.operations.stuck.facts import Facts, Reason, Row
from interlock.workflows.definition import BY_NAME, Transition
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.suggestions import ME, offered

WHY = "WHY"
ANOTHER = "SOMEBODY_ELSE"  # not the reader: an author does not approve their own work


def fire(ref: object, version: int, trigger: str, *, by: str = ME, **options: object) -> str:
    """The command that fires a trigger on an instance, unless that has moved on from a version (RECOVER-19)."""
    return offered("fire", ref, trigger, by=by, if_version=version, **options, wait=True)


def fire_on(facts: Facts, trigger: str, *, by: str = ME, **options: object) -> str:
    """The command that fires a trigger on the stuck instance, unless it has moved since."""
    return fire(facts.id, facts.instance["version"], trigger, by=by, **options)


def fire_move(facts: Facts, move: Transition) -> str:
    """The command that makes a move of the stuck instance, with a reason where its machine or an operator needs one."""
    guards = {guard.name for guard in move.when}
    as_operator = BY_NAME.intersection(move.authorities) == {"operator"}
    why = {"data": json.dumps({"reason": WHY})} if as_operator or "reason_given" in guards else {}
    return fire_on(facts, move.trigger, by=ANOTHER if "not_the_author" in guards else ME, **why)


def decision(facts: Facts, approval: object, version: int) -> Reason:
    """Who may decide an open approval, and the command for the first who has not yet."""
    row = facts.approvals[approval]
    deciders = [each for each in row["deciders"] if each != row["author"]]
    who = " or ".join(deciders) or f"anybody but {row['author'] or 'its author'}"
    votes = f" ({len(row['voters'])} of {row['quorum']} votes)" if row["quorum"] > 1 else ""
    open_to = next((each for each in deciders if each not in row["voters"]), ANOTHER)
    return Reason(f"the decision of {who}{votes}", fire(approval, version, "approve", by=open_to))


def show(row: Row) -> str:
    """The command that shows an instance, by its UUID, since other projects may use the same name."""
    return offered("show", row["id"])


def limited(facts: Facts, type_: str, tool: str | None, key: str | None) -> Reason | None:
    """Which limit it waits for, if one that counts this type, tool and key has no room (LIMIT-10)."""
    own = {"project": facts.instance["project"], "type": type_, "tool": tool, "key": key}
    waited = next((each for each in facts.spent if own[each["kind"]] == each["name"]), None)
    if waited is None:
        return None
    by_itself = f", which counts {waited['name']} by itself" if waited["pattern"] != waited["name"] else ""
    what = f"it waits for the limit on {waited['kind']} {waited['pattern']}{by_itself}: "
    command = offered("limit", "show", waited["kind"], waited["pattern"], project=facts.instance["project"])
    if waited["started"] == waited["starts"] and waited["free_at"] is not None:
        used = f"{number_of(waited['starts'], 'start')} in {waited['per_seconds']:g} s used; the next may start at "
        return Reason(f"{what}{used}{at(waited['free_at'])}", command)
    return Reason(f"{what}{waited['held']} run, of {waited['at_once']} at once; it starts when one ends", command)


def named(rows: Sequence[Row], most: int = 3) -> str:
    """`task api/build (running), task api/test (queued) and 4 more`."""
    words = [f"{row['workflow_type']} {row['entity_id']} ({row['current_state']})" for row in rows[:most]]
    return ", ".join(words) + (f" and {len(rows) - most} more" if len(rows) > most else "")


def counted(states: Mapping[str, int] | None) -> str:
    """`2 queued, 1 running`."""
    return ", ".join(f"{count} {state}" for state, count in sorted((states or {}).items()))


def at(instant: datetime) -> str:
    """An instant, to the second."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def span(seconds: float) -> str:
    """`42 s`, `12 min`, `3.5 h`, `4.0 d`."""
    for size, unit in ((86_400, "d"), (3_600, "h")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def first_line(text: object) -> str:
    """The first line of an error, shortened to 200 characters."""
    return (str(text or "").strip().splitlines() or ["no reason was given"])[0][:200]
