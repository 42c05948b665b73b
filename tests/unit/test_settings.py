"""Settings: their names in the environment, their defaults, and what happens when nothing is known."""

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from interlock.supervisor.environment import environment
from interlock.supervisor.home import home_of
from interlock.supervisor.processes import specs
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.broker.config import REDIS_TRANSPORT, celery_settings
from interlock.workers.settings import Settings, misspelt, settings
from interlock.workflows.effects import QUEUES
from interlock.workflows.errors import BadInput, NotRunning

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\bINTERLOCK_[A-Z][A-Z_]*[A-Z]\b")


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


def test_queues_of_effects_are_consumed_by_nodes_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTERLOCK_EFFECT_QUEUES", "deploys, mail")
    chosen = Settings(home=tmp_path)
    assert environment(chosen)["INTERLOCK_EFFECT_QUEUES"] == "deploys,mail"
    queues = celery_settings("redis://h/0", chosen.effect_queues)["task_queues"]
    assert {each.name for each in queues} == {*QUEUES, "deploys", "mail"}
    home, servers = home_of(chosen), Servers(postgres_port=1, redis_port=1)
    nodes = {each.name: each.command for each in specs.celery_parts(home, chosen, servers)}
    consumed = {name: command[command.index("-Q") + 1] for name, command in nodes.items() if "-Q" in command}
    assert (consumed["effects-deploys"], consumed["effects-mail"]) == ("deploys", "mail")
    left = {each.name for each in specs.parts(home, chosen, servers, None, frozenset({"effects", "triggers"}))}
    assert not {name for name in left if name.startswith(("effects", "triggers"))}


@pytest.mark.parametrize("queues", ["work", "My Queue", "deploys,effects"])
def test_a_queue_of_effects_with_a_wrong_name_or_of_interlock_itself_is_refused(
    queues: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_EFFECT_QUEUES", queues)
    with pytest.raises(ValidationError, match="expected names of at most 50 lower-case letters"):
        Settings()


def test_the_names_of_interlocks_queues_are_said_alike() -> None:
    assert {each.name for each in celery_settings("redis://h/0")["task_queues"]} == QUEUES


def test_short_tasks_have_limits_and_the_commands_of_tasks_have_none_of_them() -> None:
    chosen = celery_settings("redis://host/0")
    assert "task_time_limit" not in chosen, "it would be the limit of the commands of tasks, too"
    for limits in chosen["task_annotations"].values():
        assert limits["soft_time_limit"] < limits["time_limit"]


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


def test_a_misspelt_setting_is_noticed_and_no_variable_of_ours_is() -> None:
    assert dict(misspelt(["INTERLOCK_FLOWR_PORT", "interlock_definition", "INTERLOCK_HOME", "FLOWR_PORT"])) == {
        "INTERLOCK_FLOWR_PORT": "INTERLOCK_FLOWER_PORT",
        "interlock_definition": "INTERLOCK_DEFINITIONS",
    }
    sources = [*ROOT.glob("[!.]*/**/*.py"), ROOT / "docker-compose.yml"]
    ours = {name for each in sources if "tests" not in each.parts for name in VARIABLE.findall(each.read_text())}
    assert "INTERLOCK_READY_FILE" in ours
    assert dict(misspelt(ours)) == {}


@pytest.mark.parametrize("name", ["postgres_port", "redis_port", "flower_port", "metrics_port"])
@pytest.mark.parametrize("port", ["0", "99999"])
def test_a_port_that_cannot_be_is_refused(name: str, port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"INTERLOCK_{name.upper()}", port)
    settings.cache_clear()
    with pytest.raises(BadInput, match=f"INTERLOCK_{name.upper()}.*got '{port}'"):
        settings()
    settings.cache_clear()


def test_another_driver_of_postgresql_is_named_with_what_to_write() -> None:
    with pytest.raises(BadInput, match=r"postgresql\+psycopg2://: .* write postgresql://"):
        Settings(database_url="postgresql+psycopg2://x@y/z").resolved_database_url()
