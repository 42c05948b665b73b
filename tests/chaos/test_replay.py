"""Real pull requests, all of them, through the whole installation: interrupted, resumed, and repeated for nothing."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from demo.pull_requests import PullRequest, read
from interlock.supervisor.environment import environment
from tests.chaos.installation import ROOT, Installation
from tests.chaos.promises import assert_promises_kept
from tests.waiting import eventually

WHOLE = ROOT.parent / "shared" / "data" / "pull_requests.jsonl"
FILE = WHOLE if WHOLE.exists() else ROOT / "examples" / "pull_requests.jsonl"
REPLAY_SECONDS = 180.0
SETTLED = """
SELECT count(*) FROM trigger_requests WHERE starts_with(request_id, 'replay:') AND status IN ('applied', 'rejected')"""


@dataclass(frozen=True)
class Story:
    """What happened: a replay killed midway, then one to the end, and what the workers weighed before and after it."""

    pull_requests: list[PullRequest]
    settled_when_killed: int
    told: dict[str, Any]
    rss_before: int
    rss_after: int


def start(installation: Installation) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "demo", "replay", str(FILE), "--json"],
        env=environment(installation.settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def replay(installation: Installation) -> dict[str, Any]:
    with start(installation) as process:
        output, errors = process.communicate(timeout=REPLAY_SECONDS)
    assert process.returncode == 0, output + errors
    told: dict[str, Any] = json.loads(output)
    return told


@pytest.fixture(scope="module")
def replayed(installation: Installation) -> Story:
    """The whole file, once killed and once run to its end."""
    pull_requests = read(FILE)

    def settled() -> int:
        return int(installation.sql(SETTLED)[0][0])

    with start(installation) as interrupted:
        eventually(lambda: settled() > 3 * len(pull_requests), timeout=60, every=0.02)
        interrupted.kill()
        interrupted.communicate()
    assert_promises_kept_but_for_merges(installation)
    killed_at, before = settled(), installation.rss("triggers1")
    told = replay(installation)
    return Story(pull_requests, killed_at, told, before, installation.rss("triggers1"))


def assert_promises_kept_but_for_merges(installation: Installation) -> None:
    """The merges wait for approvals nobody has given yet; all else that was accepted is decided."""
    undecided = "SELECT 1 FROM trigger_requests WHERE status IN ('pending', 'dead') LIMIT 1"
    eventually(lambda: not installation.sql(undecided), timeout=60)


def states(installation: Installation, story: Story, type_: str) -> dict[str, int]:
    projects = list({each.project for each in story.pull_requests})
    return dict(
        installation.sql(
            "SELECT current_state, count(*) FROM workflow_instances"
            " WHERE workflow_type = %s AND project = ANY(%s) GROUP BY 1",
            type_,
            projects,
        )
    )


# Beat writes these every minute, whether or not anybody asks for anything.
WRITTEN_BY_BEAT = [
    "sweeps",
    "relay_cursors",
    "audit_exports",
    "anchors",
    "anchor_heads",
    "verifications",
    "stuck_entities",
    "partition_watch",
]


# What it wants to be told of when something is stuck for the first time, as on a busy machine.
TOLD_BY_BEAT = """position('"stuck in ' IN payload::text) > 0"""


def rows(installation: Installation) -> dict[str, int]:
    """How many rows each table has, but for beat's own and the metrics: that somebody asked again is counted."""
    kept = "schemaname = 'interlock' AND NOT starts_with(tablename, 'metric') AND tablename <> ALL(%s)"
    listed = installation.sql(f"SELECT tablename FROM pg_tables WHERE {kept}", WRITTEN_BY_BEAT)
    own = {"effects": f"WHERE NOT {TOLD_BY_BEAT}"}
    return {table: installation.sql(f"SELECT count(*) FROM {table} {own.get(table, '')}")[0][0] for (table,) in listed}


def test_a_replay_killed_midway_resumes_to_its_end(installation: Installation, replayed: Story) -> None:
    assert 0 < replayed.settled_when_killed < replayed.told["triggers"]
    assert replayed.told["new"] < replayed.told["triggers"]


def test_every_story_is_done_and_every_pull_request_merged(installation: Installation, replayed: Story) -> None:
    assert states(installation, replayed, "story") == {"done": len(replayed.pull_requests)}
    assert states(installation, replayed, "pr_review") == {"merged": len(replayed.pull_requests)}
    assert states(installation, replayed, "approval") == {"approved": len(replayed.pull_requests)}


def test_what_a_replay_tells_adds_up(replayed: Story) -> None:
    told = replayed.told
    assert {"pull_requests", "triggers", "applied", "rejected", "seconds"} <= told.keys()
    assert told["pull_requests"] == len(replayed.pull_requests)
    assert told["applied"] + told["rejected"] == told["triggers"]
    # Refused are exactly the authors who tried to approve their own work.
    assert told["rejected"] == sum(each.self_merged for each in replayed.pull_requests) > 0
    assert told["seconds"] > 0


def test_a_replay_keeps_every_promise(installation: Installation, replayed: Story) -> None:
    assert_promises_kept(installation, {})
    audited = subprocess.run(
        [sys.executable, "-m", "interlock.cli.main", "audit", "verify", "--json"],
        env=environment(installation.settings),
        capture_output=True,
        text=True,
        check=True,
    )
    verdict = json.loads(audited.stdout)
    assert (verdict["ok"], verdict["problems"]) == (True, [])
    assert verdict["instances"] >= 3 * len(replayed.pull_requests)
    assert verdict["transitions"] >= replayed.told["applied"]


def test_a_second_replay_changes_nothing(installation: Installation, replayed: Story) -> None:
    assert_promises_kept(installation, {})
    before = rows(installation)
    again = replay(installation)
    assert rows(installation) == before
    assert again["new"] == 0
    kept = ("pull_requests", "triggers", "applied", "rejected")
    assert {key: again[key] for key in kept} == {key: replayed.told[key] for key in kept}


def test_a_replay_leaves_its_workers_as_slim_as_before(replayed: Story) -> None:
    assert replayed.rss_after < 1.2 * replayed.rss_before
