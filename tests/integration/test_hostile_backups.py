"""A backup that an enemy made is refused, or restored without what would run, lead outside or fill the disk."""

import gzip
import io
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.supervisor.backup import restore, unpack
from interlock.supervisor.backup.backup import back_up
from interlock.supervisor.backup.restore import RestoreFailed
from interlock.supervisor.embedded import running
from interlock.workers.audit import backup_manifest as manifest
from interlock.workers.audit.backup_manifest import BASE, LOG, BackupUnusable, Manifest
from interlock.workers.settings import Settings
from interlock.workers.system.users import server_account
from tests import databases
from tests.homes import open_directory

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, content: bytes = b"", **said: Any) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in said.items():
        setattr(info, field, value)
    return info, content


def pack(path: Path, *members: Member) -> None:
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT, compresslevel=1) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))


HOSTILE = {
    "a path up": member("../escaped", b"x"),
    "a path up further in": member("base/../../escaped", b"x"),
    "an absolute path": member("/tmp/escaped", b"x"),  # noqa: S108 - refused
    "a symbolic link": member("base/1", type=tarfile.SYMTYPE, linkname="/etc"),
    "a link within": member("base/1", type=tarfile.SYMTYPE, linkname="../PG_VERSION"),
    "a hard link": member("base/1", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "a device": member("base/1", type=tarfile.CHRTYPE, devmajor=1, devminor=8),
    "a pipe": member("base/1", type=tarfile.FIFOTYPE),
    "a link to a tablespace": member("pg_tblspc/1", type=tarfile.SYMTYPE, linkname="/tmp"),  # noqa: S108
    "a tablespace as a directory": member("pg_tblspc/1", type=tarfile.DIRTYPE),
    "a map of tablespaces": member("tablespace_map", b"1 /tmp\n"),
    "a line break in a name": member("base/1\n2", b"x"),
    "nothing but a file": member(".", b"x", type=tarfile.SYMTYPE, linkname="/etc"),
}


def refused(tmp_path: Path, says: str, limit: int = 10**6) -> None:
    """Unpack it, to no avail; nothing is written outside, and what is counted before is refused too."""
    packed, into = tmp_path / BASE, tmp_path / "outer" / "into"
    into.mkdir(parents=True)
    with manifest.opened(packed) as file, pytest.raises(BackupUnusable, match=says):
        unpack.unpack(packed, file, into, unpack.DATA, checksum=manifest.checksum(packed), limit=limit)
    assert not [each for each in into.rglob("*") if not stat.S_ISREG(each.lstat().st_mode) and not each.is_dir()]
    assert sorted(each.name for each in tmp_path.iterdir()) == [BASE, "outer"]
    assert os.listdir(into.parent) == ["into"]


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_plain_file_under_a_plain_path_is_refused(tmp_path: Path, kind: str) -> None:
    pack(tmp_path / BASE, member("PG_VERSION", b"18\n"), HOSTILE[kind])
    with pytest.raises(BackupUnusable):
        unpack.measure(tmp_path / BASE)
    refused(tmp_path, "not a backup by Interlock")


def test_a_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    pack(tmp_path / BASE, member("PG_VERSION", b"18\n"), member("./PG_VERSION", b"17\n"))
    refused(tmp_path, "appears twice")


def test_what_unpacks_to_more_than_was_said_is_refused_before_it_is_written(tmp_path: Path) -> None:
    """A thousandth of its size is enough to pack it; its own header may also promise more than it has."""
    pack(tmp_path / BASE, member("base/1", b"x" * 100), member("base/2", bytes(20_000_000)))
    assert (tmp_path / BASE).stat().st_size < 100_000
    refused(tmp_path, "larger than its manifest states")
    assert not (tmp_path / "outer/into/base/2").exists()


@pytest.mark.parametrize("size", [2**40, -1024])
def test_a_size_that_cannot_be_is_refused(tmp_path: Path, size: int) -> None:
    header = tarfile.TarInfo("base/1")
    header.size = size
    with gzip.open(tmp_path / BASE, "wb") as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    refused(tmp_path, "not a regular file|larger than its manifest")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [10**9, -512])
def test_a_description_that_would_fill_memory_is_refused(tmp_path: Path, kind: bytes, size: int) -> None:
    header = tarfile.TarInfo("x")
    header.size, header.type = size, kind
    with gzip.open(tmp_path / BASE, "wb") as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    refused(tmp_path, "cannot be unpacked")


def test_descriptions_without_end_are_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / BASE, "wb") as file:
        header = tarfile.TarInfo("x")
        header.size, header.type = 512, tarfile.XHDTYPE
        file.write((header.tobuf(tarfile.GNU_FORMAT) + b"11 path=ab\n".ljust(512, b"\0")) * 2000)
    refused(tmp_path, "cannot be unpacked")


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"no tar" * 500), gzip.compress(b"x")[:9]],
    ids=["nothing", "no gzip", "no tar", "half a gzip"],  # gzip writes the time, and xdist compares names
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / BASE).write_bytes(content)
    refused(tmp_path, "cannot be unpacked")


# Manifests --------------------------------------------------------------------------------------------------------

SAID = Manifest(
    taken_at="2026-11-22T10:00:00+00:00", postgres=18, schema="interlock", revision="0001",
    database="interlock", role="interlock", events_before=0, events_after=0, anchor=None,
    files={BASE: "0" * 64, LOG: "0" * 64}, sizes={}, unpacked=0,
)  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"taken_at": "now()'); DROP TABLE restores; --"},
        {"taken_at": "2026-11-22T10:00:00"},
        {"files": {BASE: "0", LOG: "0", "../../etc/passwd": "0"}},
        {"files": {BASE: "0", LOG: "0", "keys/../../x.pub": "0"}},
        {"files": {BASE: "0"}},
        {"files": ["base.tar.gz"]},
        {"unpacked": "a lot"},
        {"also": 1},
        {"files": json.loads("[" * 500 + "]" * 500)},
    ],
)
def test_a_manifest_says_nothing_but_what_ours_say_even_where_anybody_is_trusted(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    restated(tmp_path, asdict(SAID) | {"signed_by": "", "signature": ""})
    assert manifest.read(tmp_path, None) == SAID
    restated(tmp_path, asdict(SAID) | {"signed_by": "", "signature": ""} | changed)
    with pytest.raises(BackupUnusable) as error:
        manifest.read(tmp_path, None)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, "{}", "null", '"x"', "\ud800".encode("utf-8", "surrogatepass")],
    ids=["deep", "empty", "null", "text", "no characters"],
)
def test_a_manifest_that_cannot_be_read_is_one_clear_line(tmp_path: Path, content: str | bytes) -> None:
    (tmp_path / manifest.NAME).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BackupUnusable, match="not a complete backup"):
        manifest.read(tmp_path, None)


def test_a_manifest_that_is_a_link_or_a_pipe_is_not_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / manifest.NAME)
    with pytest.raises(BackupUnusable):
        manifest.read(tmp_path, None)
    (tmp_path / manifest.NAME).unlink()
    os.symlink("/dev/zero", tmp_path / manifest.NAME)
    with pytest.raises(BackupUnusable):
        manifest.read(tmp_path, None)


# A whole one --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taken() -> Iterator[Path]:
    """A backup, which no test changes."""
    with open_directory() as directory:
        home = Settings(home=directory / "home")
        with running(home) as addresses:
            databases.prepare(addresses.owner_url)
            known = addresses.database_url, directory / "backups", home.signing_directory
            made = back_up(*known, replicating=addresses.superuser_url)[0]
        yield made


@pytest.fixture
def backup(taken: Path, place: Path) -> Path:
    """A copy of it, to be changed."""
    return shutil.copytree(taken, place / "backups" / taken.name)


def tampered(backup: Path, *more: Member, without: str = "") -> None:
    """Put members into its data, and have its manifest agree; there is no signature any more."""
    kept: list[Member] = []
    with tarfile.open(backup / BASE) as archive:
        for info in archive:
            if info.name != without:
                content = archive.extractfile(info) if info.isreg() else None
                kept.append((info, content.read() if content else b""))
    pack(backup / BASE, *kept, *more)
    body = json.loads((backup / manifest.NAME).read_text())
    body["files"][BASE] = manifest.checksum(backup / BASE)
    body["unpacked"] += sum(info.size for info, _ in more)
    restated(backup, body)


def restated(backup: Path, body: dict[str, Any]) -> None:
    said = {name: value for name, value in body.items() if name not in ("checksum", "signed_by", "signature")}
    (backup / manifest.NAME).write_text(json.dumps(body | {"checksum": manifest._own(said)}))


def known() -> list[str]:
    from interlock.db.migrate import revisions

    return revisions()


def test_no_program_that_a_backups_configuration_names_is_run_and_none_of_it_stays(backup: Path, place: Path) -> None:
    trap = place / "trap"
    trap.mkdir(mode=0o777)
    trap.chmod(0o777)
    run = "".join(
        f"{name} = 'touch {trap}/{name}'\n" for name in ("archive_command", "restore_command", "ssl_passphrase_command")
    )
    auto = f"{run}archive_mode = 'always'\nshared_preload_libraries = 'nothing_of_ours'\nlog_directory = '{trap}'\n"
    without = "postgresql.auto.conf"
    tampered(
        backup,
        member("postgresql.auto.conf", auto.encode()),
        member("recovery.signal"),
        member("standby.signal"),
        member("log/planted", b"x"),
        member("planted.so", b"x"),
        without=without,
    )
    again = Settings(home=place / "again")
    restore.restore(again, backup, known(), None)
    data = again.home / "postgres"
    assert not {"recovery.signal", "standby.signal", "log", "planted.so"} & {*os.listdir(data)}
    with running(again, keep=True) as addresses, psycopg.connect(addresses.superuser_url, autocommit=True) as dba:
        assert dba.execute("SELECT pg_switch_wal() IS NOT NULL, current_setting('archive_mode')").fetchone() == (
            True,
            "off",
        )
        assert dba.execute("SELECT count(*) FROM pg_file_settings").fetchone() == (0,)
    assert os.listdir(trap) == []
    assert {name: (data / name).read_text() for name in restore.CONFIGURATION} == restore.CONFIGURATION


def test_nothing_is_restored_of_a_backup_with_a_link_in_it_nor_written_elsewhere(backup: Path, place: Path) -> None:
    outside = place / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    tampered(
        backup,
        member("base/99999", type=tarfile.SYMTYPE, linkname=str(outside)),
        member("base/99999/planted", b"x"),
    )
    with pytest.raises(BackupUnusable, match="not a regular file or directory"):
        restore.restore(Settings(home=place / "again"), backup, known(), None)
    assert os.listdir(outside) == []
    assert not list((place / "again").glob("postgres*"))


def test_what_there_is_no_room_for_is_refused_at_once(backup: Path, place: Path) -> None:
    body = json.loads((backup / manifest.NAME).read_text())
    restated(backup, body | {"unpacked": 10**18})
    with pytest.raises(RestoreFailed, match="make room"):
        restore.restore(Settings(home=place / "again"), backup, known(), None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_root_restores_as_the_servers_user(backup: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., int] = unpack.unpack
    seen = []

    def watched(*words: Any, **more: Any) -> int:
        seen.append((os.geteuid(), os.getegid(), os.getgroups()))
        return real(*words, **more)

    monkeypatch.setattr("interlock.supervisor.backup.unpack.unpack", watched)
    again = Settings(home=place / "again")
    restore.restore(again, backup, known(), None)
    account = server_account(again)
    assert account
    assert seen == [(account.uid, account.gid, [])] * 2
    assert os.geteuid() == 0
    data = again.home / "postgres"
    assert {each.lstat().st_uid for each in [data, *data.rglob("*")]} == {account.uid}
