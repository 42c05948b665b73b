"""Interlock's Prometheus metrics: the name, labels and help text of each, and the collector that reads them.

Names without the prefix `interlock_` come from METRIC-1. No label is an entity's id: the number of series is bounded by
the definitions, the partitions, the sweeps, the operators and 50 limits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection

from interlock.beat.schedule import OVERDUE_PERIODS, OVERDUE_SECONDS, SCHEDULE
from interlock.db.connection import transaction
from interlock.db.core import counters, definitions, limits
from interlock.db.operations.metrics import COUNTED_AT_MOST, snapshot
from interlock.workers.audit import anchor_copies, backup_drills, exports, kept_backups
from interlock.workers.audit.signing_keys import KeyFault
from interlock.workers.operations.stuck.detector import thresholds
from interlock.workers.relay.destinations import destinations
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric: its name, labels and kind in Prometheus, and its help text for operators."""

    name: str
    labels: tuple[str, ...]
    help: str
    kind: Literal["counter", "gauge", "histogram"] = "gauge"


LIMITS = "interlock_limits"
MOST_LIMITS = 50

METRICS = (
    MetricSpec(
        "state_transitions_total",
        ("entity_type", "from_state", "to_state"),
        "moves, counted from history; every move of a definition begins at 0",
        "counter",
    ),
    MetricSpec("entity_state", ("entity_type", "state"), "instances in a state, without archived ones"),
    MetricSpec(
        "state_transition_duration_seconds",
        ("entity_type", "state"),
        "time spent in a state, from entering to leaving it",
        "histogram",
    ),
    MetricSpec(
        "manual_state_overrides_total",
        ("entity_type", "operator"),
        "overrides, by operator; each counts once, however many moves it takes. An operator's series begin with "
        "the grant, because no name is known before",
        "counter",
    ),
    MetricSpec(
        counters.FAILED_TRANSITIONS,
        ("entity_type", "reason"),
        "triggers that moved nothing: refused (`no_such_transition`, `guard`, `judge`, `approval`, …) or dead",
        "counter",
    ),
    MetricSpec(
        counters.RETRIES, ("kind", "name"), "attempts that failed and will be made again: requests, effects", "counter"
    ),
    MetricSpec(
        counters.IDEMPOTENCY_HITS, (), "triggers answered from the record because their request_id was known", "counter"
    ),
    MetricSpec(
        "interlock_refusals_total",
        ("login",),
        "attempts at what is not the caller's to do, by database login, also those beyond the limit of recorded ones",
        "counter",
    ),
    MetricSpec(counters.LEASE_EXPIRIES, ("effect",), "leases that ran out because their worker went silent", "counter"),
    MetricSpec(
        "interlock_requests",
        ("status",),
        "triggers: pending, scheduled, retrying (of the scheduled), waiting (held) and dead",
    ),
    MetricSpec("interlock_pending_requests", ("partition",), "due triggers, by partition"),
    MetricSpec(
        "interlock_partition_stuck_seconds",
        ("partition",),
        "how long a partition has been stalled at its oldest trigger; 0 if it is not stalled",
    ),
    MetricSpec(
        "interlock_queue_age_seconds",
        ("status",),
        "age of the oldest: pending, overdue (its scheduled time has passed), retrying or waiting trigger; due effect",
    ),
    MetricSpec(
        "interlock_oldest_pending_request_seconds", (), "how long the oldest due trigger has waited to be applied"
    ),
    MetricSpec("interlock_effects", ("status",), "effects: due, leased (running), dead (that can be tried again)"),
    MetricSpec("interlock_expired_leases", (), "leases that ran out and were not taken back yet"),
    MetricSpec(
        "interlock_relay_lag_seconds",
        ("destination",),
        "age of the oldest event that a destination of the relay has not received",
    ),
    MetricSpec("interlock_audit_export_lag_seconds", (), "age of the oldest event that is in no audit export"),
    MetricSpec("interlock_audit_problems", (), "what the last verification of history found, and the one under way"),
    MetricSpec("interlock_audit_age_seconds", (), "time since the last complete verification of history began"),
    MetricSpec("interlock_anchor_age_seconds", (), "age of the newest anchor, if there are events since; else 0"),
    MetricSpec(
        "interlock_anchor_copies_missing",
        ("destination",),
        "anchors that are not copied yet: to a directory, or by a command (`command PROGRAM`)",
    ),
    MetricSpec(
        "interlock_backup_age_seconds",
        (),
        "age of the newest complete backup; of the installation, if there is none",
    ),
    MetricSpec("interlock_backup_period_seconds", (), "time between two scheduled backups; 0: none are scheduled"),
    MetricSpec("interlock_backups", (), "complete backups; 0: nothing has been backed up"),
    MetricSpec(
        "interlock_backup_drill_age_seconds",
        (),
        "time since a drill last restored a backup and verified it; age of the installation, if none did",
    ),
    MetricSpec("interlock_backup_drill_period_seconds", (), "time between two scheduled drills; 0: none are scheduled"),
    MetricSpec("interlock_backup_drill_failed", (), "1 if the last drill found that its backup cannot be used, else 0"),
    MetricSpec(
        "interlock_sweep_lag_seconds", ("sweep",), "how late a sweep is: time since its last run, less its period"
    ),
    MetricSpec("interlock_sweep_run_seconds", ("sweep",), "how long a sweep's last run took"),
    MetricSpec("interlock_beat_alive", (), "1 while every sweep runs, 0 when one is overdue"),
    MetricSpec("interlock_breakers_open", ("tool",), "open circuit breakers of a tool, over all projects"),
    MetricSpec("interlock_brakes", ("kind",), "brakes that are on, by what they hold: actor, run, project, instance"),
    MetricSpec(
        LIMITS,
        ("project", "kind", "name", "status"),
        "of each limit, at most 50: held (places), started (starts that count), room (how many more may start now; of "
        "`x*`: under the name that has least), waiting (tasks, effects and jobs)",
    ),
    MetricSpec(
        "interlock_schedules",
        ("status",),
        "schedules: late (due for more than a minute), failing (could not be fired the last time)",
    ),
    MetricSpec(
        "interlock_subscriptions",
        ("status",),
        "subscriptions: active, paused; of the active, failing (their endpoint has taken nothing for a minute) and "
        "idle (nobody has delivered what is due for a minute)",
    ),
    MetricSpec(
        "interlock_stuck_entities",
        ("entity_type", "state"),
        "instances that `interlock stuck` shows, as of the last sweep",
    ),
    MetricSpec(
        "interlock_stuck_overrun",
        ("entity_type", "state"),
        "time of the longest-stuck instance in the state, as a multiple of the expected time",
    ),
    MetricSpec(
        "interlock_deprecated_uses_total",
        ("entity_type", "version", "kind", "name"),
        "moves that used a deprecated version, state or trigger",
        "counter",
    ),
    MetricSpec(
        "interlock_workers",
        ("state",),
        "workers by state, those of a `uet_worker` in capitals; without ended ones",
    ),
    MetricSpec(
        "interlock_build_info", ("version", "schema", "postgresql"), "always 1; the running versions, as labels"
    ),
    MetricSpec("interlock_scrape_seconds", (), "how long the scrape took"),
)

Samples = Mapping[counters.Series, float]


def read(runtime: Runtime) -> dict[counters.Series, float]:
    """The current value of every series, all from one snapshot; those of backups are read from their directory.

    Raises:
        DBAPIError: the database is unreachable.
    """
    began = perf_counter()
    with transaction(runtime.database) as connection:
        found = snapshot(
            connection,
            version=version("interlock"),
            sweeps={sweep.name: sweep.every_seconds for sweep in SCHEDULE},
            overdue_periods=OVERDUE_PERIODS,
            overdue_seconds=OVERDUE_SECONDS,
            stuck=thresholds(runtime.settings),
            destinations=[each.name for each in destinations(runtime)],
            export=exports.CURSOR,
        )
        copies = anchor_copies.states(connection, runtime.settings)
        found |= {("interlock_anchor_copies_missing", (each.destination,)): float(each.behind) for each in copies}
        found |= _backups(runtime, connection)
        found |= _limits(connection)
    return (
        dict.fromkeys(_zeros(runtime.catalogue), 0.0)
        | found
        | {("interlock_scrape_seconds", ()): perf_counter() - began}
    )


def _limits(connection: Connection) -> dict[counters.Series, float]:
    """Room, use and waiting work of the limits in force, the first by their names."""
    if not (listed := limits.listed(connection, most=MOST_LIMITS)):
        return {}
    found: dict[counters.Series, float] = {}
    for each in limits.with_uses(connection, listed, most=COUNTED_AT_MOST):
        own = each["uses"]
        most = min(terms for terms in (each["at_once"], each["starts"]) if terms is not None)
        values: dict[str, int] = {
            "held": sum(use["held"] for use in own),
            "started": sum(use["started"] for use in own),
            "room": min((use["room"] for use in own), default=most),
            "waiting": sum(use["waiting"] for use in own),
        }
        labels = (each["project"], each["kind"], each["name"])
        found |= {(LIMITS, (*labels, status)): float(value) for status, value in values.items()}
    return found


def _backups(runtime: Runtime, connection: Connection) -> dict[counters.Series, float]:
    """Nothing where nobody says where backups are. A directory that cannot be read counts as empty: alerts fire."""
    chosen = runtime.settings
    if not kept_backups.are_watched(chosen):
        return {}
    try:
        age, kept = kept_backups.newest_age_seconds(chosen), kept_backups.complete(chosen)
        drill = backup_drills.last(chosen.backups_directory)
    except (OSError, KeyFault):
        age, kept, drill = None, 0, None
    proven, installed = backup_drills.proven_seconds(drill), definitions.age_seconds(connection)
    found = {
        "backup_age_seconds": installed if age is None else age,
        "backup_period_seconds": chosen.backup_every_seconds,
        "backups": float(kept),
        "backup_drill_age_seconds": installed if proven is None else proven,
        "backup_drill_period_seconds": chosen.backup_drill_seconds if chosen.backup_every_seconds else 0.0,
        "backup_drill_failed": float(drill is not None and drill.problem is not None),
    }
    return {(f"interlock_{name}", ()): value for name, value in found.items()}


def _zeros(catalogue: Catalogue) -> Iterator[counters.Series]:
    """Counters of what has not happened yet, at 0, so that the first event is an increase."""
    yield counters.IDEMPOTENCY_HITS, ()
    for each in catalogue:
        yield counters.RETRIES, ("request", each.type)
        for effect in each.effects:
            yield counters.RETRIES, ("effect", effect.name)
            yield counters.LEASE_EXPIRIES, (effect.name,)


class Reader(Collector):
    """Collector for prometheus_client: calls `read` at each scrape."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def collect(self) -> Iterator[Metric]:
        """Every metric with its series. Raises as `read` does."""
        yield from families(read(self._runtime))

    def describe(self) -> Iterable[Metric]:
        """Nothing, because registering must not read the database."""
        return ()


def families(samples: Samples) -> Iterator[Metric]:
    """The samples as declared metrics, in the order of their declaration."""
    for each in METRICS:
        if each.kind == "histogram":
            yield _histogram(each, samples)
            continue
        family = (CounterMetricFamily if each.kind == "counter" else GaugeMetricFamily)(
            each.name, each.help, labels=each.labels
        )
        for (name, labels), value in sorted(samples.items()):
            if name == each.name:
                family.add_metric(labels, value)
        yield family


def _histogram(spec: MetricSpec, samples: Samples) -> HistogramMetricFamily:
    family = HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
    sums = {labels: value for (name, labels), value in samples.items() if name == f"{spec.name}_sum"}
    buckets = {labels: value for (name, labels), value in samples.items() if name == f"{spec.name}_bucket"}
    for labels in sorted(sums):
        total, cumulative = 0.0, []
        for bound in counters.BOUND_NAMES:
            total += buckets.get((*labels, bound), 0.0)
            cumulative.append((bound, total))
        family.add_metric(labels, cumulative, sums[labels])
    return family
