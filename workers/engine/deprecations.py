"""Reports each use of a deprecated path: in the log, in the request's result, and in a counter (VERSION-3)."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection

from interlock.db.core import deprecations
from interlock.workflows.definition import Definition

REFRESH_SECONDS = 10.0

log = structlog.get_logger()

Path = tuple[str, str]  # kind (version, state or trigger) and name


@dataclass(slots=True)
class Deprecations:
    """The deprecations, as this process last read them. Where there are none, the cost is a query every ten seconds."""

    known: dict[tuple[str, str], dict[Path, Mapping[str, Any]]] = field(default_factory=dict)
    until: float = 0.0

    def refresh(self, connection: Connection) -> None:
        """Read the deprecations again if the last reading is ten seconds old."""
        if monotonic() < self.until:
            return
        known: dict[tuple[str, str], dict[Path, Mapping[str, Any]]] = {}
        for row in deprecations.announced(connection):
            known.setdefault((row["type"], row["version"]), {})[row["kind"], row["name"]] = row
        self.known, self.until = known, monotonic() + REFRESH_SECONDS

    def warn(self, connection: Connection, definitions: Collection[Definition]) -> None:
        """Warn in the log of those among `definitions` that are deprecated, under which instances are being created."""
        self.refresh(connection)
        for each in definitions:
            if row := self.known.get((each.type, each.version), {}).get(("version", "")):
                log.warning("deprecated", message=deprecation_warning(row))

    def matching(self, type_: str, version: str, trigger: str, dest: str) -> Iterator[Mapping[str, Any]]:
        """The deprecations that apply to a move."""
        if paths := self.known.get((type_, version)):
            for path in (("version", ""), ("trigger", trigger), ("state", dest)):
                if path in paths:
                    yield paths[path]

    def report(
        self, connection: Connection, partition: int, events: list[dict[str, Any]], settled: list[dict[str, Any]]
    ) -> None:
        """Report the moves that use a deprecated path, and count them in this transaction.

        Args:
            connection: the round's transaction.
            partition: the round's partition.
            events: the round's moves.
            settled: the round's requests. A move that uses a deprecated path gets `deprecated` in its result.
        """
        if not self.known:
            return
        uses: Counter[UUID] = Counter()
        results = {each["result"]["event_id"]: each["result"] for each in settled if each["status"] == "applied"}
        for event in events:
            for each in self.matching(
                event["workflow_type"], event["definition_version"], event["trigger"], event["to_state"]
            ):
                uses[each["deprecation_id"]] += 1
                results[event["id"]].setdefault("deprecated", []).append(deprecation_warning(each))
                log.warning(
                    "deprecated",
                    message=deprecation_warning(each),
                    request_id=event["request_id"],
                    by=event["triggered_by"],
                )
        deprecations.count(connection, partition, uses)


def deprecation_warning(row: Mapping[str, Any]) -> str:
    """The text of one deprecation."""
    what = f"{row['kind']} {row['name']} of {row['type']} {row['version']}"
    if row["kind"] == "version":
        what = f"{row['type']} {row['version']}"
    text = f"{what} is deprecated and will be removed after {row['remove_after']:%Y-%m-%d}: {row['reason']}"
    return f"{text}. {row['guide']}" if row["guide"] else text
