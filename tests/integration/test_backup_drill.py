"""A drill proves that a backup can be restored, or says why not, and leaves nothing behind either way."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.supervisor import orphans
from interlock.supervisor.backup import drill as drills
from interlock.supervisor.home import DRILL, Home, home_of
from interlock.supervisor.processes.loop import data_places
from interlock.supervisor.servers import data_dirs, endpoints
from interlock.workers.audit import backup_manifest, signing_keys
from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from tests.cli.terminal import Answer, Terminal
from tests.driving import drain_all
from tests.homes import installed, open_directory
from tests.tampering import unprotected
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of an installation that runs, with some history."""
    with open_directory() as directory, installed(Settings(home=directory / "home")) as made:
        births = [made.birth("story", f"S-{number}", project=uuid7()) for number in range(3)]
        made.create_many(births)
        for birth in births:
            made.fire(birth.id, "design_complete", by="ann")
            made.fire(birth.id, "block", by="ann")
        drain_all(made.runtime)
        yield made


@pytest.fixture(scope="module")
def taken(client: Client) -> Path:
    return Path(here(client).ok("backup", "take")["backup"])


@pytest.fixture
def backup(taken: Path, place: Path) -> Path:
    """A copy of it, to be changed."""
    return shutil.copytree(taken, place / taken.name)


@pytest.fixture(autouse=True)
def nothing_stays(client: Client) -> Iterator[None]:
    yield
    home = client.runtime.settings.home
    assert left_in(home) == []


def left_in(within: Path) -> list[object]:
    """The files and processes of a temporary installation."""
    temporary = Home((within / DRILL).resolve())
    files: list[object] = [each for each in (temporary.path,) if each.exists()]
    return [*files, *orphans.of_home(temporary, data_places(temporary)), *data_dirs.of_home(temporary)]


def here(client: Client, **env: str) -> Terminal:
    return Terminal(client.runtime.settings.home, env)


def fails(answer: Answer, *naming: str) -> None:
    """The drill itself went well; the backup did not."""
    assert answer.code == 1, answer.said
    assert "Traceback" not in answer.said
    for name in naming:
        assert name in answer.out, answer.said


def test_the_newest_backup_is_restored_verified_and_removed_beside_the_running_installation(
    client: Client, taken: Path, place: Path
) -> None:
    """Also where copies of anchors are newer than it."""
    (place / "copies").mkdir()
    known = endpoints.load(home_of(client.runtime.settings))
    port = {"INTERLOCK_POSTGRES_PORT": str(known.postgres_port), "INTERLOCK_JOURNAL": "0"}
    terminal = here(client, **port, INTERLOCK_ANCHOR_DIRECTORIES=str(place / "copies"))
    assert terminal.ok("audit", "anchor")["copies"][0]["number"] > 0
    found = terminal.ok("backup", "drill")
    assert (found["ok"], found["backup"], found["problem"]) == (True, str(taken), None)
    assert (found["instances"], found["events"], found["problems"]) == (3, 6, [])
    assert 0 < found["age_seconds"] < 600
    assert all(found[f"{stage}_seconds"] > 0 for stage in ("restore", "start", "verify"))
    assert len(here(client).ok("list")) == 3, "the running one still runs"


def test_a_backup_that_was_tampered_with_or_cut_is_said_to_be(client: Client, backup: Path) -> None:
    packed = backup / backup_manifest.BASE
    content = bytearray(packed.read_bytes())
    content[len(content) // 2] ^= 1
    packed.write_bytes(content)
    fails(here(client).run("backup", "drill", str(backup)), "the drill failed", "base.tar.gz was changed")
    packed.write_bytes(content[:5000])
    told = here(client).run("backup", "drill", str(backup), "--json")
    assert (told.code, told.json["ok"], told.json["events"]) == (1, False, None)
    assert "base.tar.gz was changed after it was written" in told.json["problem"]
    manifest = backup / backup_manifest.NAME
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"events_before": 0}))
    fails(here(client).run("backup", "drill", str(backup)), "manifest.json was changed")
    manifest.unlink()
    fails(here(client).run("backup", "drill", str(backup)), "is not a complete backup")


def test_a_backup_whose_history_was_rewritten_before_it_was_taken_does_not_verify(client: Client, place: Path) -> None:
    superuser = endpoints.load(home_of(client.runtime.settings)).superuser_url
    change = "UPDATE interlock.workflow_transitions SET triggered_by = %s WHERE position IN"
    change += " (SELECT min(position) FROM interlock.workflow_transitions)"
    with psycopg.connect(superuser, autocommit=True) as dba, unprotected(dba, "interlock.workflow_transitions"):
        dba.execute(change, ("mallory",))
        try:
            made = here(client).ok("backup", "take", str(place / "backups"))["backup"]
        finally:
            dba.execute(change, ("ann",))
    fails(here(client).run("backup", "drill", made), "problems: 3 instances, 6 events")


def test_only_ones_own_backup_is_the_newest_and_a_key_and_a_place_can_be_given(
    client: Client, backup: Path, place: Path
) -> None:
    name = signing_keys.make(place / "theirs")
    signer = signing_keys.signer(place / "theirs", may_make=False)
    backup_manifest.read(backup, None).write(backup, signer)
    elsewhere = here(client, INTERLOCK_BACKUP_DIRECTORY=str(place))
    refused = elsewhere.run("backup", "drill")
    assert refused.code == 2
    refused.is_one_clear_line("no backup by this installation")
    elsewhere.run("backup", "drill", "nonsense").is_one_clear_line("there is no backup nonsense")
    fails(elsewhere.run("backup", "drill", backup.name), "which is not trusted here")
    (place / "room").mkdir()
    trusted = place / "theirs" / f"{name}.pub"
    told = elsewhere.run("backup", "drill", backup.name, "--trust", str(trusted), "--in", str(place / "room"))
    assert told.code == 0, told.said
    assert "verified: 3 instances, 6 events" in told.out
    assert "everything was removed again" in told.out
    assert left_in(place / "room") == []
    assert list((place / "room").iterdir()) == []


def test_one_drill_at_a_time_and_none_in_a_directory_of_others(
    client: Client, taken: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = client.runtime.settings
    keys = signing_keys.trusted_keys(chosen.signing_directory)
    monkeypatch.setattr("interlock.supervisor.backup.directory.PATIENCE_SECONDS", 0.0)
    with drills._alone(place), pytest.raises(drills.DrillUnderWay, match="another drill is running"):
        drills.drill(chosen, taken, place, keys)
    (place / DRILL).mkdir()
    (place / DRILL / "precious").touch()
    refused = here(client).run("backup", "drill", "--in", str(place))
    assert refused.code == 2
    refused.is_one_clear_line("nothing was deleted")
    assert (place / DRILL / "precious").exists()


def test_a_drill_that_would_fill_the_disk_is_refused(
    client: Client, taken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = client.runtime.settings
    keys = signing_keys.trusted_keys(chosen.signing_directory)
    monkeypatch.setattr(drills, "ROOM", 10**9)
    with pytest.raises(drills.RestoreFailed, match="a drill leaves as much free"):
        drills.drill(chosen, taken, chosen.home, keys)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_drill_that_is_ended_in_the_middle_leaves_nothing_or_the_next_removes_it(
    client: Client, taken: Path, number: signal.Signals
) -> None:
    home = client.runtime.settings.home
    with here(client).start("backup", "drill") as process:
        eventually(lambda: (home / DRILL / "run").is_dir() and (home / DRILL / "servers.json").exists(), every=0.005)
        process.send_signal(number)
        process.communicate()
    if number == signal.SIGTERM:
        assert process.returncode == 128 + number
    else:
        assert here(client).ok("backup", "drill")["ok"]
    assert left_in(home) == []
    assert len(here(client).ok("list")) == 3
