"""docker-compose.yml, checked as far as that goes without an engine (the image: test_image.py)."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery.bin.celery import celery as celery_command

from interlock.supervisor.processes.specs import FLOWER_COLUMNS, NODE_STOP_SECONDS
from interlock.workers.broker.config import celery_settings
from ops import pin_images

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OUR_IMAGE = f"interlock:{PROJECT['project']['version']}"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = ("triggers", "effects", "deliveries", "gates", "evidence", "work")
OBSERVERS = ("prometheus", "grafana")
LONG_RUNNING = sorted(set(SERVICES) - {"migrate"})
OURS = sorted(name for name, service in SERVICES.items() if "build" in service)
CELERY = celery_settings("redis://redis")
REQUIRED = re.compile(r"\$\{([A-Z_]+):\?[^}]+\}")
VARIABLE = re.compile(r"\$\{([A-Z_]+)[^}]*\}")
SECRET_NAME = re.compile(r"PASSWORD|AUTH|SECRET|TOKEN|_KEY|URL")
DURATION = re.compile(r"(\d+)(s|m)")


def seconds(duration: str) -> int:
    match = DURATION.fullmatch(duration)
    assert match, f"{duration!r} is no plain duration"
    return int(match[1]) * {"s": 1, "m": 60}[match[2]]


def options(service: str) -> dict[str, str]:
    words = [word for word in SERVICES[service]["command"] if word.startswith("--")]
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def networks(service: str) -> set[str]:
    return set(SERVICES[service]["networks"])


# Services ---------------------------------------------------------------------------------------------------------


def test_every_service_is_there() -> None:
    ours = {"migrate", *WORKERS, "beat", "flower", "metrics", "api"}
    assert set(SERVICES) == {"postgres", "redis", *ours, *OBSERVERS}
    assert {name for name, service in SERVICES.items() if "profiles" in service} == set(OBSERVERS)
    assert all(SERVICES[name]["profiles"] == ["observe"] for name in OBSERVERS)


def test_every_image_is_ours_or_pinned_to_a_digest() -> None:
    images = {service["image"] for name, service in SERVICES.items() if name in OURS}
    assert images == {f"${{INTERLOCK_IMAGE:-{OUR_IMAGE}}}"}, "one image for all services"
    for name in set(SERVICES) - set(OURS):
        assert re.fullmatch(r"[a-z]+(/[a-z]+)?:v?\d+(\.\d+)*@sha256:[0-9a-f]{64}", SERVICES[name]["image"]), name


def test_what_pins_images_sees_every_image_of_others() -> None:
    """`make images` asks the registries what the tags mean now."""
    others = [service["image"] for name, service in SERVICES.items() if name not in OURS]
    others += re.findall(r"(?m)^FROM (\S+)", (ROOT / "Dockerfile").read_text())
    seen = [found for name in pin_images.FILES for found in pin_images.PINNED.finditer((ROOT / name).read_text())]
    assert sorted(f"{each['tag']}@sha256:{each['digest']}" for each in seen) == sorted(others)


def test_postgres_is_the_newest_major_with_its_volume_where_that_image_keeps_data() -> None:
    assert SERVICES["postgres"]["image"].startswith("postgres:18")
    targets = [volume.split(":")[1] for volume in SERVICES["postgres"]["volumes"]]
    assert targets == ["/var/lib/postgresql"], "18 and later ignore …/data"


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_every_long_running_service_is_checked_and_restarted(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert len(check["test"]) == 2 or check["test"][0] == "CMD"
    assert 0 < seconds(check["timeout"]) <= seconds(check["interval"])
    assert check["retries"] >= 1
    assert SERVICES[name]["restart"] == "unless-stopped"
    assert seconds(SERVICES[name]["stop_grace_period"]) > 0


def test_each_health_check_asks_the_part_itself() -> None:
    asked = {name: " ".join(SERVICES[name]["healthcheck"]["test"]) for name in LONG_RUNNING}
    assert "pg_isready" in asked["postgres"]
    assert "valkey-cli ping | grep -q PONG" in asked["redis"], "it exits 0 when it is refused, too"
    assert "REDISCLI_AUTH" in SERVICES["redis"]["environment"]
    for name in WORKERS:
        node = options(name)["--hostname"].replace("%h", "$$HOSTNAME")
        assert f"inspect ping --destination={node} " in asked[name]
    directory, _, file = options("beat")["--schedule"].rpartition("/")
    assert f"find {directory} -name '{file}*' -mmin" in asked["beat"]
    assert "/healthcheck" in asked["flower"]
    assert f":{options('metrics')['--port']}/healthcheck" in asked["metrics"]


def test_migrate_runs_once_and_everything_waits_for_what_it_needs() -> None:
    migrate = SERVICES["migrate"]
    assert migrate["command"] == ["interlock", "migrate", "--yes"]
    assert migrate["restart"] == "no"
    assert "healthcheck" not in migrate
    assert migrate["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert SERVICES["metrics"]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    for name in (*WORKERS, "beat"):
        waits = SERVICES[name]["depends_on"]
        assert waits["migrate"]["condition"] == "service_completed_successfully"
        assert waits["redis"]["condition"] == "service_healthy"


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_dependencies_exist_and_can_become_what_is_waited_for(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]
        else:
            assert how["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "no", "it would never complete"


def test_dependencies_have_no_cycle() -> None:
    def depth(name: str, seen: tuple[str, ...] = ()) -> int:
        assert name not in seen, f"cycle: {' → '.join((*seen, name))}"
        return 1 + max((depth(other, (*seen, name)) for other in SERVICES[name].get("depends_on", {})), default=0)

    assert max(map(depth, set(SERVICES) - set(OBSERVERS))) == 3  # postgres, migrate, the rest
    assert depth("grafana") == 5


@pytest.mark.parametrize("kind", ["volumes", "networks", "configs"])
def test_what_services_use_is_declared_and_what_is_declared_is_used(kind: str) -> None:
    used = {
        use["source"] if isinstance(use, dict) else use.split(":")[0]
        for service in SERVICES.values()
        for use in service.get(kind, [])
        if not (isinstance(use, dict) and use.get("type") == "bind")  # the user's own folder
    }
    assert used == set(COMPOSE[kind])


def test_services_can_be_scaled() -> None:
    for name in WORKERS:
        assert "container_name" not in SERVICES[name]
        assert "ports" not in SERVICES[name]
        assert "%h" in options(name)["--hostname"], "two replicas would share a node name"


# Celery -----------------------------------------------------------------------------------------------------------


def test_every_queue_has_a_worker_and_no_worker_waits_on_a_queue_that_is_not() -> None:
    taken = [queue for name in WORKERS for queue in options(name)["--queues"].split(",")]
    assert sorted(taken) == sorted(queue.name for queue in CELERY["task_queues"])


@pytest.mark.parametrize("name", [*WORKERS, "beat", "flower"])
def test_celery_commands_exist_with_their_options(name: str) -> None:
    words = SERVICES[name]["command"]
    if name == "flower":  # its options are tornado's; test_flower_… names those that matter
        assert words[:4] == ["python", "-m", "interlock.workers.node", "flower"], "else it would answer to any Host"
        assert Path(ROOT, "workers", "node.py").exists()
        return
    program, app, command, *_ = words
    assert (program, app) == ("celery", "--app=interlock.workers.main:app")
    assert Path(ROOT, "workers", "main.py").exists()
    known = {word for parameter in celery_command.commands[command].params for word in parameter.opts}
    assert {*options(name)} - {"--app"} <= known


def test_workers_are_given_time_for_their_soft_shutdown() -> None:
    for name in WORKERS:
        grace = seconds(SERVICES[name]["stop_grace_period"])
        assert grace >= NODE_STOP_SECONDS > CELERY["worker_soft_shutdown_timeout"]
        # A node without a pool has a warm one: its short task comes to its end.
        assert ("REMAP_SIGTERM" in SERVICES[name]["environment"]) == ("--pool" not in options(name))
        assert SERVICES[name]["init"] is True


def test_a_gate_holds_up_no_effect_as_under_interlock_up() -> None:
    assert [name for name in WORKERS if "gates" in options(name)["--queues"].split(",")] == ["gates"]
    assert options("gates")["--queues"] == "gates"
    assert SERVICES["gates"]["volumes"] == SERVICES["work"]["volumes"], "the same worktrees"


def test_an_image_with_definitions_of_ones_own_is_as_operations_says(tmp_path: Path) -> None:
    """No engine here: its two variables and its file make the definition known."""
    page = (ROOT / "docs" / "operations.md").read_text()
    (lines,) = re.findall(r"^```dockerfile\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    base, copy, variables = (line.split() for line in lines.splitlines())
    assert base == ["FROM", OUR_IMAGE]
    source, target = copy[1:]
    shutil.copy(ROOT / "examples" / "deploy" / source, tmp_path)
    env = dict(each.split("=", 1) for each in variables[1:])
    assert env.pop("PYTHONPATH") == target.rstrip("/")
    env |= {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "interlock.cli.main", "definitions", "show", "deploy"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "INTERLOCK_IMAGE=" in page


@pytest.mark.parametrize(
    "command", re.findall(r"docker compose [^`#\n]*", (ROOT / "docs" / "operations.md").read_text())
)
def test_documented_commands_name_services_that_are_there(command: str) -> None:
    words = command.split()[2:]
    scaled = [word.partition("=")[0].removeprefix("--scale") for word in words if "=" in word]
    named = words[1:2] if words[0] == "exec" else words[-1:] if words[0] == "logs" else scaled
    assert {name.strip() for name in named} <= set(SERVICES), command


def test_the_broker_keeps_what_it_took() -> None:
    lines = COMPOSE["configs"]["redis"]["content"].splitlines()
    assert {"appendonly yes", "maxmemory-policy noeviction", "dir /data"} <= set(lines)
    assert SERVICES["redis"]["volumes"] == ["redis-data:/data"]
    (mounted,) = SERVICES["redis"]["configs"]
    assert SERVICES["redis"]["command"] == ["valkey-server", mounted["target"]]
    assert any(line.startswith("requirepass ${REDIS_PASSWORD:?") for line in lines)


# Secrets and reach ------------------------------------------------------------------------------------------------


def test_no_secret_is_written_down() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if SECRET_NAME.search(variable):
                assert VARIABLE.search(value), f"{name}: {variable} is a literal"
        assert not any("PASSWORD" in word for word in service.get("command", [])), f"{name}: arguments show in `ps`"
    for url in re.findall(r"\w+://[^\s@]*@", (ROOT / "docker-compose.yml").read_text()):
        assert REQUIRED.search(url), f"{url} has a literal password"


def test_secrets_have_no_default_and_the_example_has_no_value() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    secrets = {name for name in VARIABLE.findall(text) if name.startswith(("POSTGRES_", "REDIS_", "FLOWER_"))}
    secrets -= {"API_PORT", "FLOWER_PORT"}
    assert secrets == set(REQUIRED.findall(text))
    for name in secrets:
        assert not re.search(rf"\$\{{{name}(?!:\?)", text), f"{name} is used without `:?`"
    example = (ROOT / ".env.example").read_text()
    assignments = dict(line.split("=", 1) for line in example.splitlines() if line and not line.startswith("#"))
    assert assignments == dict.fromkeys(secrets, "")
    for name in set(VARIABLE.findall(text)) - secrets:
        assert f"# {name} " in example, f".env.example does not explain {name}"


def test_flower_has_the_columns_that_it_has_under_interlock_up() -> None:
    assert options("flower")["--tasks-columns"] == FLOWER_COLUMNS


def test_flower_is_read_only_behind_a_password_on_loopback() -> None:
    flower = SERVICES["flower"]
    assert "--read-only" in flower["command"]
    assert REQUIRED.findall(flower["environment"]["FLOWER_BASIC_AUTH"]) == ["FLOWER_USER", "FLOWER_PASSWORD"]
    assert flower["ports"] == ["127.0.0.1:${FLOWER_PORT:-5555}:5555"]
    assert not any("unauthenticated" in word.lower() for word in [*flower["command"], *flower["environment"]])


def test_only_what_people_look_at_is_reachable_from_this_machine_and_the_servers_have_no_way_out() -> None:
    reachable = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(reachable) == {"api", "flower", *OBSERVERS}
    assert all(port.startswith("127.0.0.1:") for ports in reachable.values() for port in ports)
    assert COMPOSE["networks"]["backend"]["internal"] is True
    assert all("backend" in networks(name) for name in SERVICES)
    assert {name for name in SERVICES if "outside" in networks(name)} == {
        *("effects", "deliveries", "gates", "work", "flower", "api"),
        *OBSERVERS,
    }


def test_who_needs_no_database_password_has_none() -> None:
    assert {name for name in OURS if "DATABASE_URL" in SERVICES[name]["environment"]} == {
        "migrate",
        "metrics",
        "api",
        *WORKERS,
    }


@pytest.mark.parametrize("name", OURS)
def test_our_containers_have_no_rights_they_do_not_need(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]  # noqa: S108 - the container's own
    assert "user" not in service, "the image's own"


def test_logs_cannot_fill_the_disk() -> None:
    assert all("max-size" in service["logging"]["options"] for service in SERVICES.values())


def test_compose_accepts_it() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose here")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    environment |= dict.fromkeys(REQUIRED.findall((ROOT / "docker-compose.yml").read_text()), "dummy")
    command = [docker, "compose", "--env-file", os.devnull, "--file", str(ROOT / "docker-compose.yml"), "config", "-q"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# What observes -----------------------------------------------------------------------------------------------------


def mounted(service: str) -> dict[str, Path]:
    """Where a service finds files of ours: its path -> ours."""
    binds = [use for use in SERVICES[service]["volumes"] if isinstance(use, dict)]
    assert all(use["read_only"] for use in binds)
    return {use["target"]: ROOT / use["source"] for use in binds}


def test_prometheus_scrapes_the_exporter_and_flower_and_has_the_rules() -> None:
    there = mounted("prometheus")["/etc/prometheus"]
    config = yaml.safe_load((there / "prometheus.yml").read_text())
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    assert targets == {
        "interlock": [f"metrics:{options('metrics')['--port']}"],
        "flower": [f"flower:{options('flower')['--port']}"],
    }
    assert all((there / Path(file).name).is_file() for file in config["rule_files"])


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    files = mounted("grafana")
    provisioning = files["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "interlock.yml").read_text())["providers"]
    dashboard = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert dashboard.startswith(provider["options"]["path"])
    assert files[dashboard].is_file()
