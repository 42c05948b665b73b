"""Whoever uses what is deprecated is told: in the log, in the request's result, and by a count (SSOT 9.1.3)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import structlog
from sqlalchemy import Connection

from db import deprecations

REFRESH_SECONDS = 10.0

log = structlog.get_logger()

Path = tuple[str, str]  # kind (version, state, trigger) and name


@dataclass(slots=True)
class Deprecations:
    """What is deprecated, as this process saw it last. Where nothing is, it costs a look every ten seconds."""

    known: dict[tuple[str, str], dict[Path, Mapping[str, Any]]] = field(default_factory=dict)
    until: float = 0.0

    def refresh(self, connection: Connection) -> None:
        """Look again, unless that was done within ten seconds."""
        if monotonic() < self.until:
            return
        known: dict[tuple[str, str], dict[Path, Mapping[str, Any]]] = {}
        for row in deprecations.announced(connection):
            known.setdefault((row["type"], row["version"]), {})[row["kind"], row["name"]] = dict(row)
        self.known, self.until = known, monotonic() + REFRESH_SECONDS

    def met(self, type_: str, version: str, trigger: str, dest: str) -> Iterator[Mapping[str, Any]]:
        """The deprecations that a move uses."""
        if paths := self.known.get((type_, version)):
            for path in (("version", ""), ("trigger", trigger), ("state", dest)):
                if path in paths:
                    yield paths[path]

    def tell(
        self, connection: Connection, lane: int, events: list[dict[str, Any]], settled: list[dict[str, Any]]
    ) -> None:
        """Tell those whose moves use what is deprecated, and count it in this transaction.

        Args:
            connection: the round's.
            lane: the round's.
            events: its moves.
            settled: its requests; the result of each such move gets the field `deprecated`.
        """
        if not self.known:
            return
        uses: Counter[int] = Counter()
        results = {each["result"]["event_id"]: each["result"] for each in settled if each["status"] == "applied"}
        for event in events:
            for each in self.met(
                event["workflow_type"], event["definition_version"], event["trigger"], event["to_state"]
            ):
                uses[each["id"]] += 1
                results[event["id"]].setdefault("deprecated", []).append(says(each))
                log.warning("deprecated", says=says(each), request_id=event["request_id"], by=event["triggered_by"])
        deprecations.count(connection, lane, uses)


def says(row: Mapping[str, Any]) -> str:
    """One deprecation in words."""
    what = f"{row['kind']} {row['name']} of {row['type']} {row['version']}"
    if row["kind"] == "version":
        what = f"{row['type']} {row['version']}"
    told = f"{what} is deprecated and goes after {row['remove_after']:%Y-%m-%d}: {row['reason']}"
    return f"{told}. {row['guide']}" if row["guide"] else told
