"""Started by root, neither servers nor commands have root's rights: they run as users of their own."""

import os
import pwd
import secrets
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interlock.workers.settings import Settings
from interlock.workers.system.users import (
    SYSTEM_PATH,
    Account,
    commands_account,
    create_account,
    server_account,
    spawn_options,
)
from interlock.workflows.errors import BadInput

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def names() -> Iterator[tuple[str, ...]]:
    """Names that no user of this machine has; whoever got one is gone afterwards."""
    free = tuple(f"interlock-{secrets.token_hex(4)}" for _ in range(2))
    yield free
    for name in free:
        subprocess.run(["userdel", name], env={"PATH": SYSTEM_PATH}, check=False, stderr=subprocess.DEVNULL)


@as_root
def test_servers_and_commands_run_as_users_of_their_own_that_are_made_where_missing() -> None:
    servers, commands = server_account(Settings()), commands_account(Settings())
    assert servers
    assert commands
    assert (servers.name, commands.name) == ("interlock", "interlock-commands")
    assert len({0, servers.uid, commands.uid}) == len({0, servers.gid, commands.gid}) == 3
    assert pwd.getpwnam("interlock-commands").pw_shell == "/usr/sbin/nologin"
    asked = ["/bin/sh", "-c", "id -u; id -G"]
    ran = subprocess.run(asked, **spawn_options(commands), capture_output=True, text=True, check=True)  # type: ignore[call-overload]
    assert ran.stdout.split() == [str(commands.uid), str(commands.gid)]


@as_root
def test_many_who_make_the_same_users_at_once_all_find_them(names: tuple[str, ...]) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda name: create_account(name, "INTERLOCK_RUN_AS"), names * 3))
    assert len(set(found)) == len(names)
    assert found[0] == Account(names[0], pwd.getpwnam(names[0]).pw_uid, pwd.getpwnam(names[0]).pw_gid)


@as_root
def test_a_name_that_was_set_is_never_made_a_user(names: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match=f"INTERLOCK_RUN_AS: .* no user '{names[0]}'. Make it with `useradd --system"):
        server_account(Settings(run_as=names[0]))


@as_root
@pytest.mark.parametrize("ask", [server_account, commands_account])
def test_root_is_refused(ask: object) -> None:
    chosen = Settings(run_as="root") if ask is server_account else Settings(commands_run_as="root")
    with pytest.raises(BadInput, match="has root's rights"):
        ask(chosen)  # type: ignore[operator]


@as_root
def test_commands_do_not_run_as_the_servers_user() -> None:
    with pytest.raises(BadInput, match="could read and change the database"):
        commands_account(Settings(run_as="nobody", commands_run_as="nobody"))


@as_root
def test_where_no_user_can_be_made_the_cure_is_named(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.workers.system.users.SYSTEM_PATH", "/nowhere")
    with pytest.raises(BadInput, match=f"no useradd to make it.*useradd --system .* {names[0]}"):
        create_account(names[0], "INTERLOCK_RUN_AS")


@as_root
def test_what_useradd_refuses_is_said() -> None:
    with pytest.raises(BadInput, match=r"could not be made: .*invalid user name"):
        create_account("-not a name", "INTERLOCK_RUN_AS")


@pytest.mark.skipif(os.geteuid() == 0, reason="root drops its rights")
def test_an_ordinary_user_stays_who_they_are() -> None:
    assert server_account(Settings()) is commands_account(Settings()) is None
    assert spawn_options(None) == {}
