"""A plan names where a secret is; its value is in the command's environment and nowhere else."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.workers.client.client import Client
from interlock.workers.execution import secrets
from interlock.workers.execution.secrets import SecretNotHad, resolve
from interlock.workers.pool import work_loop
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.crewing import Site, hand
from tests.driving import drain_all, state
from tests.landscape import Landscape
from tests.rights import known

Dba = "psycopg.Connection[Any]"
VALUE = "hunter2-of-the-installation"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory of secrets with one in it."""
    place = tmp_path / "secrets"
    (place / "deep").mkdir(parents=True)
    for each in (place, place / "deep"):
        each.chmod(0o700)
    secret = place / "deep" / "key"
    secret.write_text(f"{VALUE}\n")
    secret.chmod(0o600)
    return place


@pytest.fixture
def allowing(kept: Path, tmp_path: Path) -> Settings:
    tell = tmp_path / "tell"
    tell.write_text(f"#!/bin/sh\necho {VALUE}\n")
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 60 & sleep 60\n")
    bad = tmp_path / "bad"
    bad.write_text(f"#!/bin/sh\necho {VALUE}\nexit 3\n")
    for each in (tell, slow, bad):
        each.chmod(0o700)
    programs = tuple(f"{each.name}={each}" for each in (tell, slow, bad))
    return Settings(home=tmp_path, secrets=kept, secrets_env=("A_TOKEN", "UNSET"), secrets_commands=programs)


def test_a_value_comes_from_where_the_reference_says(
    allowing: Settings, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", VALUE)
    said = {"E": "env:A_TOKEN", "F": "file:deep/key", "G": f"file:{kept}/deep/key", "C": "command:tell"}
    assert resolve(allowing, said) == dict.fromkeys("EFGC", VALUE)


def link(place: Path) -> None:
    (place / "link").symlink_to(place / "deep" / "key")


def link_on_the_way(place: Path) -> None:
    (place / "way").symlink_to(place / "deep")


def hard_link(place: Path) -> None:
    (place / "twin").hardlink_to(place / "deep" / "key")


def open_to_others(place: Path) -> None:
    (place / "deep" / "key").chmod(0o640)


def writable_by_others(place: Path) -> None:
    (place / "deep").chmod(0o770)


def pipe(place: Path) -> None:
    os.mkfifo(place / "pipe", 0o600)


def short(place: Path) -> None:
    (place / "deep" / "key").write_text("abc\n")


@pytest.mark.parametrize(
    ("arrange", "reference", "says"),
    [
        (None, "env:PATH", "not among INTERLOCK_SECRETS_ENV"),
        (None, "env:UNSET", "not set"),
        (None, "command:other", "not among INTERLOCK_SECRETS_COMMANDS"),
        (None, "command:bad", "exit code 3"),
        (None, "file:gone", "No such file"),
        (None, "file:../tell", "not below"),
        (None, "file:/etc/passwd", "/etc/passwd"),
        (None, "file:deep", "not a regular file"),
        (link, "file:link", "link"),
        (link_on_the_way, "file:way/key", "way"),
        (hard_link, "file:twin", "hard links"),
        (open_to_others, "file:deep/key", "0600"),
        (writable_by_others, "file:deep/key", "other users can write"),
        (pipe, "file:pipe", "not a regular file"),
        (short, "file:deep/key", "4 to 65,536 bytes"),
        (None, "vault:x", "neither"),
    ],
)
def test_what_cannot_be_had_safely_is_refused_and_its_value_never_told(
    allowing: Settings, kept: Path, arrange: Callable[[Path], None] | None, reference: str, says: str
) -> None:
    if arrange:
        arrange(kept)
    with pytest.raises(SecretNotHad) as refused:
        resolve(allowing, {"NAME": reference})
    assert says in str(refused.value)
    assert str(refused.value).startswith("NAME: ")
    assert VALUE not in str(refused.value)


def test_a_program_that_does_not_answer_is_ended_with_all_it_started(
    allowing: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "PROGRAM_SECONDS", 0.3)
    began = time.monotonic()
    with pytest.raises(SecretNotHad, match=r"no answer in 0\.3 s"):
        resolve(allowing, {"NAME": "command:slow"})
    assert time.monotonic() - began < 20


@pytest.mark.integration
def test_a_task_gets_its_secret_and_nothing_that_is_kept_has_it(
    make_runtime: Callable[..., Runtime], kept: Path, client: Client, site: Site, dba: Dba
) -> None:
    runtime = make_runtime(secrets=kept)
    tells = ["sh", "-c", 'echo "have $NAME"; printf %s "$NAME" | base64; echo "$NAME" >&2; exit 3']
    site.queue(1, command=tells, env_from={"NAME": "file:deep/key"}, max_retries=0)
    assert work_loop.work(runtime, known(hand(runtime))) == 1
    drain_all(runtime)
    ((told,),) = dba.execute("SELECT metadata FROM workflow_transitions WHERE trigger = 'execution_failed'").fetchall()
    assert (told["exit_code"], told["stdout"], told["stderr"]) == (3, "have ***\n***\n", "***\n")
    (printed,) = (each.read_text() for each in runtime.settings.output_directory.glob("*/*"))
    assert sorted(printed.splitlines()) == ["***", "***", "have ***"]
    tables = dba.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'interlock'").fetchall()
    for (table,) in tables:
        found = dba.execute(f"SELECT count(*) FROM {table} t WHERE t::text LIKE '%{VALUE}%'").fetchone()  # type: ignore[call-overload]
        assert found == (0,), table


@pytest.mark.integration
def test_a_secret_that_is_missing_fails_the_task_or_gate_before_anything_runs(
    runtime: Runtime, client: Client, site: Site, dba: Dba, tmp_path: Path
) -> None:
    witness = tmp_path / "ran"
    (task,) = site.queue(1, command=["touch", str(witness)], env_from={"NAME": "env:PATH"})
    assert work_loop.work(runtime, known(hand(runtime))) == 1
    drain_all(runtime)
    assert state(client, task) == "retrying"
    assert "NAME: env:PATH: not among INTERLOCK_SECRETS_ENV" in client.history(task)[-1]["metadata"]["error"]
    land = Landscape(runtime, dba, tmp_path)
    gate = land.gate(["touch", str(witness)], env_from={"NAME": "file:x"})
    land.settle()
    assert (state(client, gate), land.said(gate)["exit_code"]) == ("FAILED", 126)
    assert "INTERLOCK_SECRETS, the directory of such files, is not set" in land.said(gate)["reason"]
    assert not witness.exists()
