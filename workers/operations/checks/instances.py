"""Checks of instances: operators, contradictions and what is stuck."""

from collections.abc import Iterator

from interlock.db.connection import transaction
from interlock.db.core import brakes, schedules, subscriptions
from interlock.db.operations import invariants, operators, stuck
from interlock.workers.operations.checks.finding import LATE_SECONDS, Finding
from interlock.workers.runtime import Runtime
from interlock.workflows.output.counts import number_of

CONTRADICTIONS = 10  # at most this many entities are named
BRAKES = 5  # and so many brakes


def check_operators(runtime: Runtime) -> Iterator[Finding]:
    """Whether anybody is an operator, and will be."""
    with transaction(runtime.database) as connection:
        ends = [row["until"] for row in operators.grants(connection)]
    if not ends:
        message = "nobody is an operator: nothing can be overridden, rolled back or migrated"
        yield Finding("operators", "warn", message, "interlock operator grant NAME")
    elif None not in ends:
        message = f"every operator's grant expires: from {max(ends):%Y-%m-%d %H:%M} UTC nobody is an operator"
        yield Finding("operators", "warn", message, "interlock operator grant NAME, without --until")
    else:
        yield Finding("operators", "ok", number_of(len(ends), "operator"))


def check_invariants(runtime: Runtime) -> Iterator[Finding]:
    """Instances that contradict each other."""
    with transaction(runtime.database) as connection:
        found = invariants.broken(connection, limit=CONTRADICTIONS)
    for row in found:
        message = f"{row['workflow_type']} {row['entity_id']} {row['message']} ({row['rule']})"
        yield Finding("invariants", "fail", message, "interlock audit verify; interlock playbook show invalid-state")
    if not found:
        yield Finding("invariants", "ok", "no instance contradicts another")


def check_schedules(runtime: Runtime) -> Iterator[Finding]:
    """Schedules that are late, and those that cannot be fired."""
    with transaction(runtime.database) as connection:
        found = schedules.troubled(connection, late_seconds=LATE_SECONDS)
    if found["late"]:
        message = f"{number_of(found['late'], 'late schedule')}, due for up to {found['oldest_seconds']:.0f} s"
        yield Finding("schedules", "fail", message, "interlock stuck --type schedule; is beat running?")
    if found["failing"]:
        message = f"{number_of(found['failing'], 'schedule')} could not be fired the last time"
        yield Finding("schedules", "warn", message, "interlock stuck --type schedule; interlock schedule list")
    if not (found["late"] or found["failing"]):
        yield Finding("schedules", "ok", f"{number_of(found['active'], 'schedule')}, none late or failing")


def check_brakes(runtime: Runtime) -> Iterator[Finding]:
    """Brakes that are on: what they hold waits for an operator."""
    with transaction(runtime.database) as connection:
        found = brakes.listed(connection)
    if not found:
        yield Finding("brakes", "ok", "none is on")
        return
    named = "; ".join(f"{each['entity_id']} holds {each['held']} triggers: {each['reason']}" for each in found[:BRAKES])
    more = f"; and {len(found) - BRAKES} more" if len(found) > BRAKES else ""
    yield Finding("brakes", "warn", f"{named}{more}", "interlock brake list; interlock brake release NAME --reason WHY")


def check_subscriptions(runtime: Runtime) -> Iterator[Finding]:
    """Subscriptions whose endpoint takes nothing, and those that nobody delivers."""
    with transaction(runtime.database) as connection:
        found = subscriptions.counts(connection, seconds=LATE_SECONDS)
    name, cure = "subscriptions", "interlock stuck --type subscription"
    if found["idle"]:
        message = f"{found['idle']} subscriptions have events that nobody delivers"
        yield Finding(name, "fail", message, f"{cure}; does a node take `deliveries`?")
    if found["failing"]:
        yield Finding(name, "warn", f"{found['failing']} subscriptions have an endpoint that takes nothing", cure)
    if not (found["idle"] or found["failing"]):
        yield Finding(name, "ok", f"{found['active']} subscriptions deliver, {found['paused']} are paused")


def check_stuck(runtime: Runtime) -> Iterator[Finding]:
    """Instances that are stuck."""
    with transaction(runtime.database) as connection:
        found = stuck.count_by_type(connection)
    message = ", ".join(f"{count} {type_}" for type_, count in sorted(found.items()))
    if message:
        yield Finding("stuck", "warn", f"stuck: {message}", "interlock stuck")
    else:
        yield Finding("stuck", "ok", "nothing is stuck")
