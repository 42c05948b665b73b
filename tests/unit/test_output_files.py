"""What a task prints is kept within its bound, for the operator alone, under its digest, and not for ever."""

import os
import stat
import time
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.workers.pool import output_files
from interlock.workers.pool.output_files import Kept, OutputFile, as_metadata, from_metadata, path_of
from interlock.workers.settings import Settings

RUN, TASK = UUID(int=1), UUID(int=2)
DAY = 86_400


def keep(path: Path, *pieces: bytes, limit: int = 1024) -> Kept:
    file = OutputFile(path, limit)
    for each in pieces:
        file.take(each)
    return file.end()


@given(pieces=st.lists(st.binary(max_size=300), max_size=12), limit=st.integers(4, 400))
def test_however_it_is_split_the_beginning_and_the_end_are_kept(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], limit: int
) -> None:
    path, printed = tmp_path_factory.mktemp("kept") / "run" / "task.1", b"".join(pieces)
    kept = keep(path, *pieces, limit=limit)
    content = path.read_bytes() if path.exists() else b""
    if len(printed) <= limit:
        assert (content, kept.left_out_bytes) == (printed, 0)
    else:
        end = limit // 4
        gap = f"\n[{len(printed) - limit} bytes left out]\n".encode()
        assert content == printed[: limit - end] + gap + printed[len(printed) - end :]
        assert kept.left_out_bytes == len(printed) - limit
    assert (kept.bytes, kept.sha256, kept.fault) == (len(content), sha256(content).hexdigest(), None)
    assert from_metadata(as_metadata(kept)) == kept


def test_only_its_owner_may_read_it_whatever_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keep(path := path_of(Settings(home=tmp_path), RUN, TASK, 7), b"secret")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_what_cannot_be_kept_is_said_and_raises_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run" / "task.1"
    path.parent.mkdir()
    path.symlink_to(victim := tmp_path / "victim")
    kept = keep(path, b"text", b"more")
    assert (kept.bytes, kept.fault is not None) == (0, True)
    assert not victim.exists()


def test_a_sweep_deletes_what_is_past_its_days_once_an_hour(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, keep_output_days=2)
    old, young = (path_of(settings, UUID(int=number), TASK, 1) for number in (1, 2))
    for path, days in ((old, 3), (young, 1)):
        keep(path, b"text")
        os.utime(path, (time.time() - days * DAY,) * 2)
    assert output_files.sweep(settings) == 1
    assert (old.parent.exists(), young.exists()) == (False, True)
    os.utime(young, (0, 0))
    assert output_files.sweep(settings) == 0, "the last sweep was a moment ago"
    os.utime(settings.output_directory / output_files.SWEPT, (0, 0))
    assert output_files.sweep(settings) == 1
