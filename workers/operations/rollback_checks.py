"""What a compensation plan's tests, gates and notices are here: the gates of the run, and INTERLOCK_NOTIFY_URLS."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import RowMapping

from db import patches
from db.connect import transaction
from workers import notice
from workers.execution.run import run
from workers.orchestration.commands import command_of
from workers.repository.compensation import Means
from workers.repository.plan import Notify
from workers.repository.reverting import Verdict
from workers.runtime import Runtime
from workflows.errors import BadInput
from workflows.orchestration.evidence import EXPECTED_EXIT_CODES

WORDS = 1_000  # of a failed command's output
EVERYBODY = "all"
SCHEMES = {"email": ("mailto", "mailtos"), "webhook": ("json", "jsons", "form", "forms", "xml", "xmls")}


def means_of(runtime: Runtime, entry: RowMapping) -> Means:
    """The means of rolling back one ledger entry: the gates of its run, its workstream's own where that has such."""
    with transaction(runtime.database) as connection:
        gates = patches.gates_of_run(connection, entry["run_id"])
    own = [each for each in gates if each["workstream_id"] == entry["workstream_id"]]

    def run_gate(tree: Path, gate_type: str) -> Verdict:
        found = _of_type(own, gate_type) or _of_type(gates, gate_type)
        return _all(found, tree) if found else Verdict(False, f"the run has no gate of type {gate_type}")

    def run_tests(tree: Path, suite: str) -> Verdict:
        found = [each for each in gates if suite in (each["name"], each["name"].rpartition("/")[2])]
        return _all(found, tree) if found else run_gate(tree, suite)

    return Means(run_tests=run_tests, run_gate=run_gate, notify=_notify(runtime, entry))


def _of_type(gates: Sequence[RowMapping], gate_type: str) -> list[RowMapping]:
    return [each for each in gates if each["gate_type"] == gate_type]


def _all(gates: Sequence[RowMapping], tree: Path) -> Verdict:
    """Run gates' commands in a tree, up to the first that fails."""
    for each in gates:
        if not (verdict := _one(each, tree)).success:
            return verdict
    return Verdict(True, f"passed: {', '.join(each['name'] for each in gates)}")


def _one(gate: RowMapping, tree: Path) -> Verdict:
    context = gate["context"]
    try:
        ended = run(command_of(context, tree))
    except (BadInput, ValueError) as unfit:
        return Verdict(False, f"{gate['name']} cannot be run: {unfit}")
    if ended.succeeded(context.get("expected_exit_codes", EXPECTED_EXIT_CODES)):
        return Verdict(True, gate["name"])
    return Verdict(False, f"{gate['name']}: {ended.reason}: {(ended.stdout + ended.stderr)[-WORDS:]}")


def _notify(runtime: Runtime, entry: RowMapping) -> Callable[[Notify], Verdict]:
    def notify(wanted: Notify) -> Verdict:
        urls = [url for url in runtime.settings.notify_urls if any(_serves(url, each) for each in wanted.channels)]
        if not urls:
            return Verdict(False, f"no target of INTERLOCK_NOTIFY_URLS is one of {', '.join(wanted.channels)}")
        to = f" (for {', '.join(wanted.recipients)})" if wanted.recipients else ""
        try:
            notice.tell(urls, title=f"patch {entry['entity_id']} rolled back", body=f"commit {entry['commit_sha']}{to}")
        except notice.NoticeNotSent as unheard:
            return Verdict(False, str(unheard))
        return Verdict(True, f"told {len(urls)}")

    return notify


def _serves(url: str, channel: str) -> bool:
    """Whether a target is of a channel: `all`, an apprise scheme (`slack`), `email` or `webhook`."""
    return channel == EVERYBODY or url.partition(":")[0] in (channel, *SCHEMES.get(channel, ()))
