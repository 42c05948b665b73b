"""What agents say is kept up to a limit, and sealed by their report."""

from hashlib import sha256
from pathlib import Path

from interlock.workers.pool import agent_log
from interlock.workers.pool.output_files import Kept


def test_it_is_kept_up_to_the_limit_and_not_after_it_is_sealed(tmp_path: Path) -> None:
    path = tmp_path / "output" / "RUN" / "TASK.1"
    assert agent_log.sealed(path) is None
    assert agent_log.append(path, "one\n", 8)
    assert not agent_log.append(path, "three\n", 8)
    assert agent_log.append(path, "two\n", 8)
    assert agent_log.sealed(path) == Kept(8, sha256(b"one\ntwo\n").hexdigest())
    assert not agent_log.append(path, "", 8)
    assert agent_log.sealed(path) == Kept(8, sha256(b"one\ntwo\n").hexdigest())
    assert path.read_text() == "one\ntwo\n"
