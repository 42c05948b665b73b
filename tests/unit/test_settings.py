"""Settings: their names in the environment, their defaults, and what happens when nothing is known."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from interlock.supervisor.environment import environment
from interlock.workers.broker.config import REDIS_TRANSPORT, celery_settings
from interlock.workers.settings import Settings, settings
from interlock.workflows.errors import BadInput, NotRunning


@pytest.mark.parametrize("name", ["DATABASE_URL", "INTERLOCK_DATABASE_URL"])
def test_the_database_is_read_under_its_plain_name_and_ours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "postgres://me@db/mine")
    assert Settings().resolved_database_url() == "postgresql+psycopg://me@db/mine"


@pytest.mark.parametrize("name", ["DATABASE_URL", "INTERLOCK_DATABASE_URL"])
def test_an_error_names_the_variable_that_was_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "postgresql://me@db:port/mine")
    settings.cache_clear()
    with pytest.raises(BadInput, match=f"^{name}: is not a URL; "):
        settings()


def test_our_name_wins_over_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_URL", "redis://plain/0")
    monkeypatch.setenv("INTERLOCK_BROKER_URL", "redis://ours/0")
    assert Settings().resolved_broker_url() == "redis://ours/0"


def test_without_urls_the_embedded_servers_are_found_in_the_home(tmp_path: Path) -> None:
    known = {"database_url": "postgresql://i@127.0.0.1:2/interlock", "broker_url": "redis://127.0.0.1:1/0"}
    (tmp_path / "servers.json").write_text(json.dumps(known))
    found = Settings(home=tmp_path)
    assert found.resolved_database_url() == "postgresql+psycopg://i@127.0.0.1:2/interlock"
    assert found.resolved_broker_url() == found.resolved_redis_url() == "redis://127.0.0.1:1/0"


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}"], ids=["missing", "empty", "half", "list", "no-url"])
def test_where_nothing_is_known_the_cure_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "servers.json").write_text(content)
    with pytest.raises(NotRunning, match=rf"{tmp_path}.*interlock up"):
        Settings(home=tmp_path).resolved_database_url()


def test_rabbitmq_is_no_event_bus_unless_another_redis_is_named() -> None:
    assert Settings(broker_url="amqp://host//").resolved_redis_url() is None
    assert Settings(broker_url="amqp://host//", redis_url="redis://r/0").resolved_redis_url() == "redis://r/0"


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_DEFINITIONS", "mine.machines, yours.machines,")
    assert Settings().definitions == ("mine.machines", "yours.machines")


def test_an_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Settings()
    for name in Settings.model_fields:
        monkeypatch.setenv(f"INTERLOCK_{name.upper()}", "")
    assert Settings() == plain
    monkeypatch.setenv("DATABASE_URL", "postgres://me@db/mine")
    assert Settings().database_url == "postgres://me@db/mine"


def test_parts_get_an_empty_list_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given = environment(Settings(capabilities=()))
    monkeypatch.setenv("INTERLOCK_CAPABILITIES", given["INTERLOCK_CAPABILITIES"])
    assert Settings().capabilities == ()


@pytest.mark.parametrize("name", ["MAX_ATTEMPTS", "BACKOFF_BASE_SECONDS", "EFFECT_LEASE_SECONDS", "STREAM_MAXLEN"])
def test_a_setting_that_makes_no_sense_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"INTERLOCK_{name}", "0")
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_no_task_outlives_the_time_after_which_its_message_is_delivered_again() -> None:
    chosen = celery_settings("redis://host/0")
    patience = chosen["broker_transport_options"]["visibility_timeout"]
    assert "task_time_limit" not in chosen, "it would be the limit of the commands of tasks, too"
    for limits in chosen["task_annotations"].values():
        assert limits["soft_time_limit"] < limits["time_limit"] < patience


@pytest.mark.parametrize("url", ["redis://h/0", "rediss://h/0", "unix:///s"])
def test_every_redis_url_gets_the_transports_settings(url: str) -> None:
    assert celery_settings(url)["broker_transport_options"] == REDIS_TRANSPORT
    assert celery_settings("amqp://h//")["broker_transport_options"] == {}


def test_only_json_travels_and_results_stay_in_postgresql() -> None:
    chosen = celery_settings("redis://host/0")
    assert chosen["accept_content"] == ["json"]
    assert chosen["result_backend"] is None
    assert chosen["task_ignore_result"]
    assert chosen["task_acks_late"]
