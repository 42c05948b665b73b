"""The machine and the software versions of a run, without which its figures mean nothing."""

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import psycopg
from redis import Redis

PACKAGES = ("celery", "kombu", "redis", "sqlalchemy", "psycopg", "transitions")
SYNCS = 100


def describe(home: Path, database_url: str, broker_url: str) -> dict[str, Any]:
    """CPU, memory, operating system, versions, load, and the time of a durable write in the data's directory."""
    with psycopg.connect(database_url) as connection:
        postgres = connection.execute("SHOW server_version").fetchone()
    with Redis.from_url(broker_url) as redis:
        server = redis.info("server")
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "os": _os(),
        "filesystem": _filesystem(home),
        "sync_microseconds": round(_sync_seconds(home) * 1e6),
        "load_average": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        "postgresql": postgres[0] if postgres else "?",
        "valkey": server.get("valkey_version") or server["redis_version"],
        **{name: version(name) for name in PACKAGES},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _os() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        name = platform.system()
    return f"{name}, {platform.system()} {platform.release()}"


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip()


def _filesystem(home: Path) -> str:
    mounts = [each for each in psutil.disk_partitions(all=True) if home.resolve().is_relative_to(each.mountpoint)]
    return max(mounts, key=lambda each: len(each.mountpoint)).fstype if mounts else "?"


def _sync_seconds(home: Path) -> float:
    """Seconds of a durable 8 KiB write, which each commit of a single trigger has to wait for."""
    probe = home / "sync-probe"
    try:
        with probe.open("wb", buffering=0) as file:
            began = time.perf_counter()
            for _ in range(SYNCS):
                file.write(bytes(8192))
                os.fsync(file.fileno())
            return (time.perf_counter() - began) / SYNCS
    finally:
        probe.unlink(missing_ok=True)
