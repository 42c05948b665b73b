"""Checks every part of an installation: what is wrong, why it matters, and which command would help."""

from collections.abc import Callable, Iterator

from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError

from interlock.workers.operations.checks import api, database, evidence, instances, processes, requests
from interlock.workers.operations.checks.finding import Finding
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import NotRunning, NotYours
from interlock.workflows.output.urls import without_users


def examine(runtime: Runtime) -> list[Finding]:
    """Run every check. Nothing is changed, and a part that is down is a finding, not an error."""
    findings: list[Finding] = []
    for name, check in CHECKS:
        try:
            findings += check(runtime)
        except (DBAPIError, RedisError, OSError, NotRunning, NotYours) as error:
            reason = without_users(str(getattr(error, "orig", None) or error).strip().splitlines()[0])
            findings.append(Finding(name, "fail", f"no answer: {reason}", "interlock status; interlock up --detach"))
    return findings


CHECKS: tuple[tuple[str, Callable[[Runtime], Iterator[Finding]]], ...] = (
    ("database", database.check_database),
    ("changes", database.check_changes),
    ("backlog", requests.check_backlog),
    ("partitions", requests.check_partitions),
    ("relay", requests.check_relay),
    ("beat", processes.check_beat),
    ("redis", processes.check_redis),
    ("workers", processes.check_workers),
    ("sandbox", processes.check_sandbox),
    ("crew", processes.check_crew),
    ("api", api.check_api),
    ("journal", evidence.check_journal),
    ("anchors", evidence.check_anchors),
    ("copies", evidence.check_copies),
    ("verification", evidence.check_verification),
    ("backups", evidence.check_backups),
    ("operators", instances.check_operators),
    ("schedules", instances.check_schedules),
    ("brakes", instances.check_brakes),
    ("subscriptions", instances.check_subscriptions),
    ("stuck", instances.check_stuck),
    ("invariants", instances.check_invariants),
)
