"""What Interlock tells Prometheus: each metric's name, labels and meaning, and the collector that reads them.

Names without the prefix are the SSOT's (7.3.1). No label is an entity's id: the number of series is bounded by the
definitions, the lanes, the sweeps and the operators.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, RowMapping

from beat.schedule import OVERDUE_PERIODS, OVERDUE_SECONDS, SCHEDULE
from db import metrics
from db.connect import transaction
from workers.auditing import exports
from workers.journal import Journal
from workers.relay import Destination
from workers.runtime import Runtime
from workers.stream import STREAM
from workers.stuck.look import thresholds
from workflows.catalogue import Catalogue

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric: what Prometheus calls it, what its labels are, and what an operator reads about it."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    says: str


METRICS = (
    Declared(
        "state_transitions_total",
        "counter",
        ("entity_type", "from_state", "to_state"),
        "moves, counted from history; every move that a definition has begins at 0",
    ),
    Declared(
        "entity_state", "gauge", ("entity_type", "state"), "instances that stand in a state (archived ones are not)"
    ),
    Declared(
        "state_transition_duration_seconds",
        "histogram",
        ("entity_type", "state"),
        "time spent in a state, from entering to leaving it",
    ),
    Declared(
        "manual_state_overrides_total",
        "counter",
        ("entity_type", "operator"),
        "overrides, by who made them; each once, however many moves it takes",
    ),
    Declared(
        metrics.FAILED_TRANSITIONS,
        "counter",
        ("entity_type", "reason"),
        "triggers that did not move their instance: refused (`no_such_transition`, `guard`, `approval`, …) or dead",
    ),
    Declared(
        metrics.RETRIES, "counter", ("kind", "name"), "attempts that failed and will be made again: requests, effects"
    ),
    Declared(metrics.IDEMPOTENCY_HITS, "counter", (), "triggers answered from the record: their request_id was known"),
    Declared(metrics.LEASE_EXPIRIES, "counter", ("effect",), "leases that ran out: their worker went silent"),
    Declared(
        "interlock_requests",
        "gauge",
        ("status",),
        "triggers: pending, scheduled, retrying (of the scheduled), waiting (held) and dead",
    ),
    Declared("interlock_pending_requests", "gauge", ("lane",), "triggers that are due, by lane"),
    Declared(
        "interlock_queue_age_seconds",
        "gauge",
        ("status",),
        "age of the oldest: pending, overdue (scheduled, and its time has passed), retrying, waiting, effect (due)",
    ),
    Declared(
        "interlock_oldest_pending_request_seconds",
        "gauge",
        (),
        "how long the oldest trigger that is due has waited to be applied",
    ),
    Declared("interlock_effects", "gauge", ("status",), "effects: due, leased (running), dead"),
    Declared("interlock_expired_leases", "gauge", (), "leases that ran out and have not been taken back"),
    Declared(
        "interlock_relay_lag_seconds",
        "gauge",
        ("destination",),
        "age of the oldest event that a destination of the relay has not got",
    ),
    Declared(
        "interlock_audit_export_lag_seconds", "gauge", (), "age of the oldest event that no export of the audit has"
    ),
    Declared("interlock_sweep_lag_seconds", "gauge", ("sweep",), "how late a sweep is: its age less its period"),
    Declared("interlock_sweep_run_seconds", "gauge", ("sweep",), "how long a sweep's last run took"),
    Declared("interlock_beat_alive", "gauge", (), "1 while every sweep runs, 0 when one is overdue"),
    Declared("interlock_breakers_open", "gauge", ("tool",), "open circuit breakers of a tool, over all projects"),
    Declared(
        "interlock_stuck_entities",
        "gauge",
        ("entity_type", "state"),
        "what `interlock stuck` shows, as last swept",
    ),
    Declared(
        "interlock_stuck_overrun",
        "gauge",
        ("entity_type", "state"),
        "how many times longer than expected the longest stuck one has stood there",
    ),
    Declared(
        "interlock_deprecated_uses_total",
        "counter",
        ("entity_type", "version", "kind", "name"),
        "moves that used what is deprecated: a version, a state or a trigger",
    ),
    Declared("interlock_workers", "gauge", ("state",), "workers by state, but those shut down"),
    Declared(
        "interlock_build_info", "gauge", ("version", "schema", "postgresql"), "always 1; what runs here, as labels"
    ),
    Declared("interlock_scrape_seconds", "gauge", (), "how long reading all this took"),
)

Samples = Mapping[metrics.Series, float]


class Counters(Destination):
    """The relay's destination that counts: exactly once, since it writes through the cursor's own transaction."""

    name = metrics.CURSOR

    def carry(self, connection: Connection, events: Sequence[RowMapping]) -> None:
        """Add a batch of events to the counters."""
        metrics.count(connection, [event["id"] for event in events])


def read(runtime: Runtime) -> dict[metrics.Series, float]:
    """Every series as it stands, all of one moment.

    Raises:
        DBAPIError: the database is away.
    """
    began = perf_counter()
    with transaction(runtime.database) as connection:
        found = metrics.snapshot(
            connection,
            version=version("interlock"),
            sweeps={sweep.name: sweep.every_seconds for sweep in SCHEDULE},
            overdue_periods=OVERDUE_PERIODS,
            overdue_seconds=OVERDUE_SECONDS,
            stuck=thresholds(runtime.settings),
            destinations=_destinations(runtime),
            export=exports.CURSOR,
        )
    return (
        dict.fromkeys(_zeros(runtime.catalogue), 0.0)
        | found
        | {("interlock_scrape_seconds", ()): perf_counter() - began}
    )


def _destinations(runtime: Runtime) -> list[str]:
    stream = [STREAM] if runtime.redis is not None else []
    return [metrics.CURSOR, *stream, *([Journal.name] if runtime.settings.journal else [])]


def _zeros(catalogue: Catalogue) -> Iterator[metrics.Series]:
    """What has not happened yet, so that its first time is an increase."""
    yield metrics.IDEMPOTENCY_HITS, ()
    for each in catalogue:
        yield metrics.RETRIES, ("request", each.type)
        for effect in (*each.birth_effects, *(effect for move in each.transitions for effect in move.effects)):
            yield metrics.RETRIES, ("effect", effect.name)
            yield metrics.LEASE_EXPIRIES, (effect.name,)


class Reader(Collector):
    """Gives Prometheus's own library what `read` reads, at each scrape."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def collect(self) -> Iterator[Metric]:
        """Every metric with its series. Raises as `read` does."""
        yield from families(read(self._runtime))

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not read."""
        return ()


def families(samples: Samples) -> Iterator[Metric]:
    """Samples as the metrics that are declared, in that order."""
    for each in METRICS:
        if each.kind == "histogram":
            yield _histogram(each, samples)
            continue
        family = (CounterMetricFamily if each.kind == "counter" else GaugeMetricFamily)(
            each.name, each.says, labels=each.labels
        )
        for (name, labels), value in sorted(samples.items()):
            if name == each.name:
                family.add_metric(labels, value)
        yield family


def _histogram(declared: Declared, samples: Samples) -> HistogramMetricFamily:
    family = HistogramMetricFamily(declared.name, declared.says, labels=declared.labels)
    sums = {labels: value for (name, labels), value in samples.items() if name == f"{declared.name}_sum"}
    buckets = {labels: value for (name, labels), value in samples.items() if name == f"{declared.name}_bucket"}
    for labels in sorted(sums):
        total, cumulative = 0.0, []
        for bound in metrics.BOUND_NAMES:
            total += buckets.get((*labels, bound), 0.0)
            cumulative.append((bound, total))
        family.add_metric(labels, cumulative, sums[labels])
    return family
