"""The servers' user, attacked and subverted, cannot have root write, read or give away what is root's."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.supervisor import orphans
from interlock.supervisor.servers import handover, postgres
from interlock.workers.settings import Settings
from interlock.workers.system.users import Account, server_account
from interlock.workflows.errors import InterlockError

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root prepares files for another user"),
]
TRIES = 1_000
CONFIGURED = 25  # each so manieth: it takes a process, and is safe by its rights, not by being quick
SECRET = "root's own\n"

# As the servers' user: put links to root's file wherever root may be about to write, as fast as it goes.
ATTACKER = """
import os, select, sys
uid, gid, where, target = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
os.setgroups([]); os.setgid(gid); os.setuid(uid)
planted = 0

def attempt(deed, *given):
    global planted
    try:
        deed(*given)
        planted += 1
    except OSError:
        pass

print(flush=True)
while not select.select([0], [], [], 0)[0]:
    for _ in range(20):
        for name in os.listdir(where):
            place = os.path.join(where, name)
            for path in ("password", "data", "data/pg_hba.conf", "data/PG_VERSION", "data/postmaster.pid"):
                attempt(os.symlink, target, os.path.join(place, path))
            attempt(os.rename, os.path.join(place, "data"), os.path.join(place, "mine"))
            attempt(os.unlink, os.path.join(place, "password"))
print(planted)
"""


@pytest.fixture
def account() -> Account:
    found = server_account(Settings())
    assert found
    return found


@pytest.fixture
def target(place: Path, tmp_path: Path) -> Iterator[Path]:
    """A file of root's, which nobody else may read or write; at the end it is as it was."""
    file = tmp_path / "target"
    file.write_text(SECRET)
    file.chmod(0o600)
    yield file
    assert file.read_text() == SECRET
    found = file.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, 0, 0o600)


@pytest.fixture
def attacked(place: Path, target: Path, account: Account) -> Iterator[None]:
    """While a process of the servers' user plants links, each where it may."""
    command = [sys.executable, "-c", ATTACKER, str(account.uid), str(account.gid), str(place), str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdout
        attacker.stdout.readline()
        yield
        said, _ = attacker.communicate("stop\n")
        assert int(said) > TRIES / 10, "the attacker was too slow to prove anything"


@pytest.mark.usefixtures("attacked")
def test_a_thousand_races_for_links_gain_the_servers_user_nothing(place: Path, account: Account) -> None:
    written = refused = 0
    for number in range(TRIES):
        with handover.build_directory(place / "postgres") as workshop:
            draft, password = postgres.prepare(workshop, "secret", account)
            assert password.read_text() == "secret"
            assert not password.is_symlink()
            if number % CONFIGURED == 0:
                try:
                    postgres.configure(draft, account)
                    written += 1
                except InterlockError:
                    refused += 1  # the account may not write what its own link leads to
            draft.rename(place / "postgres")
        while (place / "postgres").exists():
            shutil.rmtree(place / "postgres", ignore_errors=True)  # the attacker still fills it
    assert written + refused == TRIES / CONFIGURED
    assert list(place.iterdir()) == []


def test_what_is_given_away_is_the_accounts_alone(place: Path, account: Account) -> None:
    with handover.build_directory(place / "postgres") as workshop:
        draft, password = postgres.prepare(workshop, "secret", account)
        assert (workshop.stat().st_uid, workshop.stat().st_mode & 0o777) == (0, 0o711)
        for path, mode in ((draft, 0o700), (password, 0o600)):
            found = path.stat()
            assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (account.uid, account.gid, mode)


def test_a_link_in_the_data_is_neither_read_nor_followed(place: Path, target: Path, account: Account) -> None:
    data = handover.directory_for(account, place / "postgres")
    (data / "PG_VERSION").symlink_to(target)
    (data / "postmaster.pid").symlink_to(target)
    with pytest.raises(postgres.DataUnusable) as refused:
        postgres.check(data)
    assert SECRET.strip() not in str(refused.value)
    assert postgres.postmaster_pid(data) is None
    orphans.end_backends(data)
    assert list(data.iterdir()) == [data / "PG_VERSION"]


def test_a_pipe_in_the_data_does_not_keep_root_waiting(place: Path, account: Account) -> None:
    data = handover.directory_for(account, place / "postgres")
    os.mkfifo(data / "postmaster.pid")
    assert postgres.postmaster_pid(data) is None


def test_what_an_attacker_left_in_a_workshop_is_deleted_not_followed(
    place: Path, target: Path, account: Account
) -> None:
    left = handover.directory_for(account, place / "postgres.new-0123")
    (left / "link").symlink_to(target)
    (left / "above").symlink_to(target.parent)
    with handover.build_directory(place / "postgres"):
        assert not left.exists()
