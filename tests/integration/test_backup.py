"""A backup is whole or not there; restored, it verifies and works on; nothing told is told twice, nothing left out."""

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from redis import Redis
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import history
from interlock.supervisor.backup import backup as backups
from interlock.supervisor.backup import restore
from interlock.supervisor.backup.backup import back_up
from interlock.supervisor.backup.base_backup import BackupFailed
from interlock.supervisor.backup.directory import LOCK, PARTIAL, BackupUnderWay, exclusively
from interlock.supervisor.backup.restore import NotEmpty, RestoreFailed
from interlock.supervisor.embedded import running
from interlock.supervisor.environment import environment
from interlock.supervisor.home import home_of
from interlock.supervisor.servers import endpoints
from interlock.workers.audit import backup_manifest as manifest
from interlock.workers.audit import signing_keys
from interlock.workers.audit.backup_manifest import BackupUnusable
from interlock.workers.audit.kept_backups import age_seconds
from interlock.workers.audit.verify import verify
from interlock.workers.broker.event_stream import STREAM
from interlock.workers.client.client import Client
from interlock.workers.relay.journal import Journal
from interlock.workers.relay.redis_stream import Stream
from interlock.workers.relay.relay import relay
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workers.system.ended_by import ended_by
from interlock.workflows.audit.cursors import named
from tests.cli.terminal import Terminal
from tests.driving import applied, drain_all
from tests.homes import installed, open_directory
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running_one() -> Iterator[Client]:
    """A client of an installation that runs, for tests that do not mind each other's stories."""
    with open_directory() as directory, installed(Settings(home=directory / "home")) as client:
        yield client


def some(client: Client, count: int, project: str | None = None) -> list[UUID]:
    """Stories with two events each."""
    births = [client.birth("story", f"S-{uuid7().hex}", project=project or uuid7()) for _ in range(count)]
    client.create_many(births)
    for birth in births:
        client.fire(birth.id, "design_complete", by="ann")
        client.fire(birth.id, "block", by="ann")
    drain_all(client.runtime)
    return [birth.id for birth in births]


def take(client: Client, place: Path) -> Path:
    chosen = client.runtime.settings
    url = chosen.resolved_database_url().replace("+psycopg", "")
    return back_up(url, place / "backups", chosen.signing_directory, replicating=superuser(client))[0]


def superuser(client: Client) -> str:
    return endpoints.load(home_of(client.runtime.settings)).superuser_url


def known() -> list[str]:
    from interlock.db.migrate import revisions

    return revisions()


def believed(place: Path) -> dict[str, Ed25519PublicKey]:
    return signing_keys.trusted_keys(place / "home" / "keys")


def put_back(place: Path, backup: Path, of: Path | None = None) -> Settings:
    """Restore to `place`; trusted are the keys of the installation in `of`, or in the same place."""
    again = Settings(home=place / "again")
    restore.restore(again, backup, known(), believed(of or place))
    return again


def room(client: Client) -> Path:
    """Where an installation's home is."""
    return client.runtime.settings.home.parent


def left_in(directory: Path) -> list[Path]:
    """What a directory of backups holds beside its lock."""
    return [each for each in directory.iterdir() if each.name != LOCK]


def signed_anew(backup: Path, place: Path, **changed: Any) -> None:
    """Have a backup say something else, with the installation's own signature."""
    said = replace(manifest.read(backup, believed(place)), **changed)
    said.write(backup, signing_keys.signer(place / "home" / "keys", may_make=False))


# The whole way ---------------------------------------------------------------------------------------------------


def test_a_backup_under_traffic_restores_verifies_and_works_on(running_one: Client, place: Path) -> None:
    some(running_one, 20)
    stop = threading.Event()
    traffic = threading.Thread(target=lambda: [some(running_one, 3) for _ in iter(stop.is_set, True)])
    traffic.start()
    try:
        backup = take(running_one, place)
    finally:
        stop.set()
        traffic.join()
    told = manifest.read(backup, believed(room(running_one)))
    restored = Terminal(running_one.runtime.settings.home).run("restore", str(backup), "--into", str(place / "again"))
    assert "Events after the backup are unknown" in restored.out, restored.said
    again = Settings(home=place / "again")
    assert again.state_directory.is_dir(), "where the journal goes on"
    with running(again, keep=True):
        runtime = Runtime(again)
        try:
            verdict = verify(runtime)
            assert verdict.ok, verdict.problems
            assert told.events_before <= verdict.transitions
            made = Client(runtime).create("story", "S-after", project=uuid7())["id"]
            applied(Client(runtime), made, "design_complete")
            assert verify(runtime).ok
        finally:
            runtime.close()


def test_the_commands_tell_what_was_lost_as_far_as_the_journal_can(running_one: Client, place: Path) -> None:
    chosen = running_one.runtime.settings
    before = verify(running_one.runtime).transitions
    kept = some(running_one, 1)[0]
    carry(running_one)
    terminal = Terminal(chosen.home)
    backup = terminal.ok("backup", "take", str(place / "backups"))
    assert backup["events_after"] == before + 2
    lost = some(running_one, 1)[0]
    carry(running_one)
    answer = terminal.ok(
        "restore", backup["backup"], "--into", str(place / "again"), "--journal", str(chosen.state_directory)
    )
    assert (answer["ok"], answer["events"], answer["problems"]) == (True, before + 2, [])
    assert {each["workflow_id"] for each in answer["lost"]} == {str(lost)}
    assert [each["trigger"] for each in answer["lost"]] == ["design_complete", "block"]
    assert kept != lost
    refused = terminal.run("restore", backup["backup"], "--into", str(place / "again"))
    refused.is_one_clear_line("exists", "--into ANOTHER")
    assert refused.code == 2


def carry(client: Client) -> None:
    """Relay to the journal and to the stream."""
    runtime = client.runtime
    chosen = runtime.settings
    assert runtime.redis is not None
    journal = Journal(chosen.state_directory, max_bytes=10**9, daily=False)
    relay(runtime.database, [journal, Stream(runtime.redis, maxlen=100_000)])


def ids(redis: "Redis") -> list[str]:
    return [fields[b"event_id"].decode() for _, fields in redis.xrange(STREAM)]


def test_a_stream_that_outlived_the_database_gets_every_event_once(running_one: Client, place: Path) -> None:
    """What is relayed again is not added again, and what is new is not taken for old."""
    redis = running_one.runtime.redis
    assert redis is not None
    stream = Stream(redis, maxlen=100_000)
    relay(running_one.runtime.database, [stream])
    others = ids(redis)
    some(running_one, 2)
    relay(running_one.runtime.database, [stream])
    some(running_one, 1)  # committed before the backup, relayed after it
    backup = take(running_one, place)
    relay(running_one.runtime.database, [stream])
    some(running_one, 5)  # lost
    relay(running_one.runtime.database, [stream])
    before = ids(redis)
    assert len(before) == len(others) + 16
    again = put_back(place, backup, room(running_one))
    with running(again, keep=True):
        runtime = Runtime(again)
        try:
            relay(runtime.database, [stream])
            assert ids(redis) == before
            some(Client(runtime), 2)
            assert relay(runtime.database, [stream]) == 4
            after = ids(redis)
            assert after[: len(before)] == before
            assert len(set(after)) == len(after) == len(before) + 4
            with transaction(runtime.database) as connection:
                assert len(history.epochs(connection)) == 1
        finally:
            runtime.close()


def test_names_of_transactions_never_fall_back() -> None:
    assert named(7, []) == 7
    assert named(7, [8]) == 7
    assert named(8, [8]) == 8 + 2**40
    assert named(20, [8, 15]) == 20 + 2**41


# What is kept -----------------------------------------------------------------------------------------------------


def test_backups_are_listed_newest_first_with_what_is_wrong_with_each(running_one: Client, place: Path) -> None:
    some(running_one, 1)
    older, cut, newer = (take(running_one, place) for _ in range(3))
    with (cut / backups.BASE).open("r+b") as packed:
        packed.truncate(1000)
    stranger = place / "backups" / "interlock-20200101T000000000000Z"
    shutil.copytree(older, stranger)
    signing_keys.make(place / "home" / "keys")
    signed_by_another = manifest.read(older, believed(room(running_one)))
    signed_by_another.write(stranger, signing_keys.signer(place / "home" / "keys", may_make=False))
    (place / "backups" / "notes.txt").touch()
    terminal = Terminal(running_one.runtime.settings.home, {"INTERLOCK_BACKUP_DIRECTORY": str(place / "backups")})
    found = terminal.ok("backup", "list")
    assert [each["backup"] for each in found] == [str(each) for each in (newer, cut, older, stranger)]
    assert [each["problem"] is None for each in found] == [True, False, True, False]
    assert "is damaged: base.tar.gz has 1,000 bytes" in found[1]["problem"]
    assert "which is not trusted here" in found[3]["problem"]
    assert found[0]["bytes"] == sum(each.stat().st_size for each in newer.rglob("*.gz")) + sum(
        each.stat().st_size for each in (newer / "backup_manifest", *newer.glob("keys/*"))
    )
    assert 0 <= found[0]["age_seconds"] < 600
    now = datetime.now(UTC)
    keys = believed(room(running_one))
    assert 0 <= (age_seconds(place / "backups", keys, now) or -1.0) < 600
    assert age_seconds(place / "backups", keys, now - timedelta(days=1)) is None, "those from the future do not count"
    assert terminal.ok("backup", "list", str(place / "nowhere")) == []


# What is refused -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taken(running_one: Client) -> Path:
    """Room with one backup and the keys of its installation."""
    directory = room(running_one)
    some(running_one, 1)
    take(running_one, directory)
    return directory


@pytest.fixture
def backup(taken: Path, place: Path) -> Path:
    """A copy of it, to be changed."""
    shutil.copytree(taken / "home" / "keys", place / "home" / "keys")
    (only,) = (taken / "backups").glob("interlock-*")
    return shutil.copytree(only, place / "backups" / only.name)


def test_a_damaged_backup_is_refused_before_anything_is_made(backup: Path, place: Path) -> None:
    packed = backup / backups.BASE
    content = bytearray(packed.read_bytes())
    content[len(content) // 2] ^= 1
    packed.write_bytes(content)
    with pytest.raises(BackupUnusable, match=r"base\.tar\.gz was changed after it was written"):
        put_back(place, backup)
    assert not (place / "again").exists()
    packed.unlink()
    with pytest.raises(BackupUnusable, match="cannot be read"):
        put_back(place, backup)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("postgres", 17, "was made by PostgreSQL 17, this is 18"),
        ("revision", "9999", "newer than this installation knows"),
        ("schema", "elsewhere", "INTERLOCK_SCHEMA=elsewhere"),
        ("role", "somebody", "your own server's"),
    ],
)
def test_a_backup_that_cannot_be_restored_here_is_refused(
    backup: Path, place: Path, field: str, value: Any, says: str
) -> None:
    signed_anew(backup, place, **{field: value})
    with pytest.raises(BackupUnusable, match=says):
        put_back(place, backup)
    assert not (place / "again").exists()


def test_a_changed_manifest_is_refused(backup: Path, place: Path) -> None:
    file = backup / manifest.NAME
    body = json.loads(file.read_text())
    body["events_after"] += 1
    file.write_text(json.dumps(body))
    with pytest.raises(BackupUnusable, match="changed after it was written"):
        put_back(place, backup)


def test_a_backup_that_a_stranger_signed_is_refused_unless_anybody_is_trusted(backup: Path, place: Path) -> None:
    """Also where it brings the stranger's public key along: what lies in a backup vouches for nothing."""
    ours = believed(place)
    said = manifest.read(backup, ours)
    name = signing_keys.make(place / "stranger")
    shutil.copy(place / "stranger" / f"{name}.pub", backup / "keys")
    files = said.files | {f"keys/{name}.pub": manifest.checksum(backup / "keys" / f"{name}.pub")}
    replace(said, files=files).write(backup, signing_keys.signer(place / "stranger", may_make=False))
    with pytest.raises(BackupUnusable, match=f"signed with the key '{name}', which is not trusted.*--trust FILE"):
        put_back(place, backup)
    assert manifest.read(backup, signing_keys.trusted_keys(place / "stranger" / f"{name}.pub")).files == files
    assert manifest.read(backup, None).files == files


def test_a_key_that_came_with_the_backup_is_not_believed(tmp_path: Path) -> None:
    keys_of_it = tmp_path / "backup" / "keys"
    keys_of_it.mkdir(parents=True)
    (keys_of_it / "stranger.pub").write_text("x")
    refused = Terminal(tmp_path / "home").run(
        "restore", str(tmp_path / "backup"), "--trust", str(keys_of_it / "stranger.pub")
    )
    refused.is_one_clear_line("came with the backup", "--trust-anyone")


def test_what_is_changed_and_given_a_fitting_checksum_lacks_the_signature(backup: Path, place: Path) -> None:
    file = backup / manifest.NAME
    before = json.loads(file.read_text())
    signed_anew(backup, place, events_after=0)
    body = json.loads(file.read_text()) | {"signature": before["signature"]}
    file.write_text(json.dumps(body))
    with pytest.raises(BackupUnusable, match="was changed"):
        put_back(place, backup)


def test_a_home_with_data_is_left_as_it_is(backup: Path, place: Path) -> None:
    again = put_back(place, backup)
    assert (before := written(again.home / "postgres"))
    with pytest.raises(NotEmpty, match="is restored only into an empty home"):
        put_back(place, backup)
    assert written(again.home / "postgres") == before


def written(directory: Path) -> dict[Path, int]:
    """Everything below a directory, and when it was last written."""
    return {each: each.stat().st_mtime_ns for each in directory.rglob("*")}


def test_a_server_that_lets_nobody_replicate_is_refused_with_what_to_do(running_one: Client, place: Path) -> None:
    url = running_one.runtime.settings.resolved_database_url().replace("+psycopg", "")
    with psycopg.connect(superuser(running_one), autocommit=True) as dba:
        dba.execute("CREATE ROLE reader LOGIN PASSWORD 'x' IN ROLE pg_read_all_data")
    weaker = url.replace(url.split("@", maxsplit=1)[0], "postgresql://reader:x")
    with pytest.raises(BackupFailed, match="must be allowed to replicate"):
        back_up(weaker, place / "backups", place / "keys")
    assert left_in(place / "backups") == []


FULL = """#!/bin/sh
printf 'waiting for checkpoint\\r  12/345 kB (3%%), 0/1 tablespace\\r' >&2
echo 'pg_basebackup: error: could not write to compressed file "x/base.tar.gz": No space left on device' >&2
echo 'pg_basebackup: removing data directory "x"' >&2
exit 1
"""


def test_a_full_disk_is_named_and_what_to_do(running_one: Client, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = place / "programs"
    programs.mkdir()
    (programs / "pg_basebackup").write_text(FULL)
    (programs / "pg_basebackup").chmod(0o755)
    monkeypatch.setattr("interlock.supervisor.servers.postgres.programs", lambda: programs)
    with pytest.raises(BackupFailed) as failed:
        take(running_one, place)
    assert "No space left on device. Make room there" in str(failed.value)
    assert "replicate" not in str(failed.value)


def test_a_place_that_cannot_be_written_and_a_database_that_is_away_are_one_clear_line(place: Path) -> None:
    (place / "file").touch()
    here = Terminal(place / "home", {"DATABASE_URL": "postgresql://x:y@127.0.0.1:1/z"})
    for directory, says in (("file/backups", "Not a directory"), ("backups", "does not answer")):
        failed = here.run("backup", "take", str(place / directory))
        assert failed.code == 1
        failed.is_one_clear_line(says)


# Being killed ----------------------------------------------------------------------------------------------------

ASKED_TO_END = """
import sys
from pathlib import Path
from interlock.supervisor.servers import postgres
programs = Path(sys.argv.pop(1))
postgres.programs = lambda: programs
from interlock.cli.main import main
main()
"""

BACKUP = """
import sys, subprocess, time
from pathlib import Path
from interlock.supervisor.backup.backup import back_up
def stay(*_):
    print(flush=True)
    time.sleep(600)
"""
MOMENTS = {
    "while it is copied": "",
    "when pg_basebackup has just been started": """
class Popen(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        if "pg_basebackup" in command[0]:
            while not [*Path(sys.argv[2]).glob(".partial-*")]:
                time.sleep(0.001)
            stay()
subprocess.Popen = Popen
""",
}


def writing_to(directory: Path) -> list[int]:
    """The pids of programs that write a backup there."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(word.startswith(f"--pgdata={directory}") for word in process.info["cmdline"] or ())
    ]


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_a_backup_that_is_killed_leaves_nothing_that_looks_whole(running_one: Client, place: Path, moment: str) -> None:
    program = f"{BACKUP}{moment}back_up(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), stay)"
    words = [sys.executable, "-c", program, superuser(running_one), str(place / "backups")]
    words.append(str(running_one.runtime.settings.signing_directory))
    with subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, **environment(Settings())}) as victim:
        assert victim.stdout
        victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
    eventually(lambda: not writing_to(place / "backups"))
    (left,) = left_in(place / "backups")
    assert left.name.startswith(PARTIAL)
    with pytest.raises(BackupUnusable, match="not a complete backup"):
        put_back(place, left)
    whole = take(running_one, place)
    assert left_in(place / "backups") == [whole]  # what was left is gone


def test_two_backups_at_once_follow_each_other_and_the_second_does_not_wait_for_long(
    running_one: Client, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: take(running_one, place), range(2)))
    assert sorted(left_in(place / "backups")) == sorted(both)
    monkeypatch.setattr("interlock.supervisor.backup.directory.PATIENCE_SECONDS", 0.0)
    with exclusively(place / "backups"), pytest.raises(BackupUnderWay, match="another backup is being written"):
        take(running_one, place)
    assert sorted(left_in(place / "backups")) == sorted(both)


def test_a_backup_that_is_asked_to_end_leaves_nothing(running_one: Client, place: Path) -> None:
    programs = place / "programs"
    programs.mkdir()
    (programs / "pg_basebackup").write_text(
        "#!/bin/sh\nmkdir \"${1#--pgdata=}\"; echo '1/345 kB' >&2; exec sleep 600\n"
    )
    (programs / "pg_basebackup").chmod(0o755)
    words = [sys.executable, "-c", ASKED_TO_END, str(programs), "backup", "take", str(place / "backups")]
    variables = Terminal(running_one.runtime.settings.home).variables
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=variables) as asked:
        eventually(lambda: list((place / "backups").glob(f"{PARTIAL}*")))
        asked.terminate()
        assert asked.wait(60) == 128 + signal.SIGTERM
    assert writing_to(place / "backups") == []
    assert left_in(place / "backups") == []


def test_if_pg_basebackup_alone_is_killed_the_backup_fails_and_what_it_started_ends(
    running_one: Client, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "pg_basebackup").write_text('#!/bin/sh\nmkdir "${1#--pgdata=}"; sleep 600 & kill -KILL $$\n')
    (place / "pg_basebackup").chmod(0o755)
    monkeypatch.setattr("interlock.supervisor.servers.postgres.programs", lambda: place)
    with pytest.raises(BackupFailed, match="ended by signal 9"):
        take(running_one, place)
    assert left_in(place / "backups") == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the signal may come in any iterator
def test_whenever_a_backup_is_asked_to_end_nothing_is_left(running_one: Client, place: Path) -> None:
    (place / "backups").mkdir()
    later = 0.0
    while not left_in(place / "backups"):  # until one was whole before it was asked to end
        later += max(0.04, later / 4)  # all stages, also where each takes ten times as long
        asking = threading.Timer(later, os.kill, (os.getpid(), signal.SIGTERM))
        with contextlib.suppress(SystemExit), ended_by({signal.SIGTERM}):
            asking.start()
            take(running_one, place)
            asking.join()
        gc.collect()  # whatever the signal left half made ends here, not in a later test that knows nothing of it
        assert writing_to(place / "backups") == []
        assert list((place / "backups").glob(f"{PARTIAL}*")) == []
    assert later > 0.05


def test_what_is_no_draft_of_a_backup_is_left_alone(running_one: Client, place: Path) -> None:
    others = place / "backups" / f"{PARTIAL}of-somebody-else"
    others.mkdir(parents=True)
    whole = take(running_one, place)
    assert sorted(left_in(place / "backups")) == sorted([others, whole])


def test_a_restore_that_fails_leaves_an_empty_home(backup: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("interlock.supervisor.backup.unpack.unpack", full)
        with pytest.raises(RestoreFailed, match=r"No space left on device\. It was removed again"):
            put_back(place, backup)
    assert not (place / "again" / "postgres").exists()
    put_back(place, backup)
