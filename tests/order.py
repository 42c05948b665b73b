"""The order of the tests under xdist: the cores are kept busy, and no long test runs alone at the end.

Tests of one module, or of one `xdist_group`, run one after another in one process, because they share what they have
started. Those that take long come first: those that mostly wait in every other process, while the others compute.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

# What takes long, the longest first, in seconds of a whole run (`--durations`): they need not be exact.
WAITING: Mapping[str, int] = {
    "chaos": 258,
    "cli": 132,
    "tests/integration/test_as_an_ordinary_user.py": 67,
    "tests/integration/test_escapes.py": 62,
    "tests/integration/test_crew_nodes.py": 59,
    "tests/integration/test_tutorials.py": 57,
    "tests/integration/test_fork_server.py": 48,
    "tests/integration/test_gates.py": 46,
    "tests/integration/test_event_reader.py": 36,
    "wheel": 35,
    "tests/integration/test_supervisor_servers.py": 35,
    "tests/console/test_in_chromium.py": 33,
    "tests/integration/test_schedules_once.py": 28,
    "tests/console/test_operators_in_chromium.py": 27,
}
COMPUTING: Mapping[str, int] = {
    "tests/property/test_run_properties.py": 49,
    "tests/integration/test_regressions.py": 37,
    "tests/integration/test_tampering_table.py": 32,
    "tests/integration/test_tampering_beside_history.py": 30,
    "tests/integration/test_corrected_patches.py": 29,
    "tests/fuzz/test_fuzz.py": 27,
    "tests/integration/test_playbooks.py": 26,
    "tests/integration/test_forging.py": 23,
    "tests/integration/test_backup.py": 22,
    "tests/integration/test_hostile_worktrees.py": 22,
    "tests/integration/test_operator_commands.py": 21,
    "tests/integration/test_every_move.py": 19,
    "tests/integration/test_tampering.py": 18,
    "tests/integration/test_backup_schedule.py": 17,
    "tests/integration/test_landing.py": 17,
    "tests/integration/test_sweeps.py": 17,
    "tests/integration/test_conformance.py": 16,
    "tests/api/test_event_stream.py": 16,
    "tests/integration/test_execution_trees.py": 15,
    "tests/integration/test_log_comparison.py": 15,
    "tests/integration/test_hostile_landing.py": 15,
    "tests/integration/test_own_effects.py": 14,
    "tests/api/test_document.py": 14,
    "tests/integration/test_alerts_fire.py": 14,
    "tests/integration/test_audit_reports.py": 13,
    "tests/integration/test_override_claims.py": 13,
    "tests/api/test_operating.py": 13,
    "tests/console/test_a_million.py": 12,
    "tests/integration/test_strange_folder.py": 12,
    "tests/integration/test_bounds.py": 12,
    "tests/api/test_rights.py": 12,
    "tests/integration/test_metrics.py": 11,
    "tests/api/test_frozen.py": 11,
    "tests/api/test_verifying.py": 10,
    "tests/property/test_engine_against_model.py": 10,
    "tests/integration/test_limits_kept.py": 9,
    "tests/property/test_breaker_kills.py": 7,
}
LONG: Mapping[str, int] = {**WAITING, **COMPUTING}


def arranged(groups: Mapping[str, Sequence[T]], processes: int) -> list[T]:
    """Put tests in the order in which `xdist.scheduler.WorkStealingScheduling` has them run as described above.

    It first gives each process as many tests as any other, in this order. A process that has run all of its own takes
    half of what another has left, from the end: so each part ends with short tests.

    Args:
        groups: the tests of each group, in any order.
        processes: how many run them.
    """
    parts: list[list[T]] = [[] for _ in range(processes)]
    for long, chosen in ((WAITING, parts[::2]), (COMPUTING, parts[1::2] or parts)):
        loads = [0] * len(chosen)
        for name in filter(groups.__contains__, long):
            least = loads.index(min(loads))
            loads[least] += long[name]
            chosen[least] += groups[name]
    short = [each for name, tests in groups.items() if name not in LONG for each in tests]
    left = len(short) + sum(map(len, parts))
    for number, part in enumerate(parts):
        size = left // (processes - number)
        left -= size
        room = max(0, size - len(part))
        part.extend(short[:room])
        del short[:room]
    return [each for part in [*parts, short] for each in part]
