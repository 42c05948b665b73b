"""Runs a compensation plan's tests and gates with the run's gates, and sends its notices to INTERLOCK_NOTIFY_URLS."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.orchestration import commands, patches
from interlock.db.orchestration.commands import CommandRow
from interlock.db.orchestration.patches import GateOfRun, PatchEntry
from interlock.workers.effects import notification
from interlock.workers.effects.stored_command import NO_COMMAND, command_of
from interlock.workers.effects.workspace import Workplace
from interlock.workers.execution.process import run
from interlock.workers.execution.secrets import SecretNotHad
from interlock.workers.git.revert import RevertOutcome
from interlock.workers.git.rollback import Callbacks
from interlock.workers.git.rollback_plan import Notify
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput

WORDS = 1_000  # characters of a failed command's output
EVERYBODY = "all"
SCHEMES = {"email": ("mailto", "mailtos"), "webhook": ("json", "jsons", "form", "forms", "xml", "xmls")}


def callbacks_of(runtime: Runtime, entry: PatchEntry, place: Workplace) -> Callbacks:
    """The means to roll back one ledger entry: the gates of its workstream or, for types it lacks, of its run."""
    with transaction(runtime.database) as connection:
        gates = patches.gates_of_run(connection, entry["run_id"])
        known = commands.of_many(connection, [each["id"] for each in gates])
    own = [each for each in gates if each["workstream_id"] == entry["workstream_id"]]

    def run_gate(tree: Path, gate_type: str) -> RevertOutcome:
        found = _of_type(own, gate_type) or _of_type(gates, gate_type)
        if not found:
            return RevertOutcome(False, f"the run has no gate of type {gate_type}")
        return _all(found, known, place, tree)

    def run_tests(tree: Path, suite: str) -> RevertOutcome:
        found = [each for each in gates if suite in (each["name"], each["name"].rpartition("/")[2])]
        return _all(found, known, place, tree) if found else run_gate(tree, suite)

    return Callbacks(run_tests=run_tests, run_gate=run_gate, notify=partial(_notify, runtime, entry))


def _of_type(gates: Sequence[GateOfRun], gate_type: str) -> list[GateOfRun]:
    return [each for each in gates if each["gate_type"] == gate_type]


def _all(gates: Sequence[GateOfRun], known: Mapping[UUID, CommandRow], place: Workplace, tree: Path) -> RevertOutcome:
    """Run gates' commands in a tree, up to the first that fails."""
    for each in gates:
        if not (verdict := _one(each, known.get(each["id"]), place, tree)).success:
            return verdict
    return RevertOutcome(True, f"passed: {', '.join(each['name'] for each in gates)}")


def _one(gate: GateOfRun, row: CommandRow | None, place: Workplace, tree: Path) -> RevertOutcome:
    if row is None:
        return RevertOutcome(False, f"{gate['name']}: {NO_COMMAND}")
    try:
        command = command_of(row, tree, place)
    except (BadInput, SecretNotHad) as unfit:
        return RevertOutcome(False, f"{gate['name']} cannot be run: {unfit}")
    with place.compared() as changed:
        ended = run(command)
    if changed:
        return RevertOutcome(
            False, f"{gate['name']}: while it ran, {place.checkout} changed: {', '.join(changed[:20])}"
        )
    if ended.succeeded(row.expected_exit_codes):
        return RevertOutcome(True, gate["name"])
    return RevertOutcome(False, f"{gate['name']}: {ended.reason}: {(ended.stdout + ended.stderr)[-WORDS:]}")


def _notify(runtime: Runtime, entry: PatchEntry, wanted: Notify) -> RevertOutcome:
    urls = [url for url in runtime.settings.notify_urls if any(_serves(url, each) for each in wanted.channels)]
    if not urls:
        return RevertOutcome(False, f"no target of INTERLOCK_NOTIFY_URLS is one of {', '.join(wanted.channels)}")
    to = f" (for {', '.join(wanted.recipients)})" if wanted.recipients else ""
    title, body = f"patch {entry['entity_id']} rolled back", f"commit {entry['commit_sha']}{to}"
    try:
        notification.deliver(urls, title=title, body=body)
    except notification.NoticeNotSent as unheard:
        return RevertOutcome(False, str(unheard))
    return RevertOutcome(True, f"notified {len(urls)} targets")


def _serves(url: str, channel: str) -> bool:
    """Whether a target belongs to a channel: `all`, an apprise scheme (`slack`), `email` or `webhook`."""
    return channel == EVERYBODY or url.partition(":")[0] in (channel, *SCHEMES.get(channel, ()))
