"""What older versions of its requirements the client works with: `python -m tests.compat.client_versions` (network).

For each line of `TRIED` a virtual environment gets the wheel built from this tree, at those versions; what is not named
is the newest that fits. In it `PROGRAM` imports the public names and uses both clients, with real servers and a worker
of this tree. The ranges in pyproject.toml are what holds here.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from interlock.supervisor.embedded import running
from interlock.supervisor.environment import environment
from interlock.workers.settings import Settings
from tests import databases
from tests.nodes import node

ROOT = Path(__file__).parents[2]
TRIED = (
    (),
    (  # the lowest of all together
        "celery==5.0.5",
        "psycopg[binary]==3.1.18",
        "pydantic==2.7.4",
        "pydantic-settings==2.7.0",
        "redis==4.5.5",
        "rich==13.8.0",
        "sqlalchemy==2.0.0",
        "structlog==23.1.0",
        "transitions==0.9.0",
        "typer==0.26.0",
        "uuid-utils==0.9.0",
    ),
    ("sqlalchemy==2.0.0",),
    ("sqlalchemy<2.1",),
    ("celery==5.0.5",),
    ("celery==5.1.2",),
    ("celery==5.2.7",),
    ("celery==5.3.6",),
    ("celery==5.4.0",),
    ("celery==5.5.3",),
    ("celery<5.7",),
    ("redis==4.5.5",),
    ("psycopg[binary]==3.1.18",),
)
PROGRAM = """
import asyncio, os
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from interlock import Agent, AsyncClient, Client, Definition, Guard, T

with Client() as client:
    story = client.create("story", NAME, project=PROJECT)
    receipt = client.fire(story["id"], "design_complete", by="a")
    assert client.wait([receipt.request_id])[0].status == "applied"
    with Session(create_engine(client.runtime.settings.resolved_database_url())) as session, session.begin():
        receipt = client.fire(NAME, "start_coding", by="a", session=session)
    assert client.wait([receipt.request_id])[0].status == "applied"

async def main():
    async with AsyncClient() as interlock:
        receipt = await interlock.fire(story["id"], "submit_pr", by="a")
        assert (await interlock.wait([receipt.request_id]))[0].status == "applied"
        engine = create_async_engine(interlock.runtime.settings.resolved_database_url())
        async with AsyncSession(engine) as session, session.begin():
            receipt = await interlock.fire(NAME, "request_changes", by="a", session=session)
        await engine.dispose()
        assert (await interlock.wait([receipt.request_id]))[0].status == "applied"
        assert len(await interlock.history(NAME)) == 4

asyncio.run(main())
with Agent("agent-" + NAME) as agent:
    assert agent.claim() is None
"""


def run(*words: object, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


def tried(versions: tuple[str, ...], wheel: Path, settings: Settings) -> str:
    """`works`, or the last line of what went wrong."""
    with tempfile.TemporaryDirectory() as place:
        run(sys.executable, "-m", "venv", place)
        python = Path(place) / "bin" / "python"
        made = run(python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", wheel, *versions)
        if made.returncode:
            return f"cannot be installed: {last_line(made.stderr)}"
        name = f"S-{uuid4().hex[:8]}"
        program = f"NAME, PROJECT = {name!r}, '{uuid4()}'\n{PROGRAM}"
        used = run(python, "-I", "-c", program, env=environment(settings), cwd=place, timeout=90)
        command = (Path(place) / "bin" / "interlock", "fire", name, "block", "--by", "a", "--wait")
        shown = run(*command, env=environment(settings), timeout=90)
        failed = used.stderr if used.returncode else shown.stderr if shown.returncode else ""
        return last_line(failed) if failed else "works"


def last_line(text: str) -> str:
    return [line for line in text.splitlines() if line.strip() and "WARNING" not in line][-1][:200]


def main() -> None:
    """Try each, or those whose text holds a word that is given."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("only", nargs="?", default="", help="such as `celery`")
    only = words.parse_args().only
    with tempfile.TemporaryDirectory() as place, running(Settings(home=Path(place) / "home")) as servers:
        settings = Settings(home=Path(place) / "home", database_url=servers.database_url, broker_url=servers.broker_url)
        databases.prepare(servers.owner_url)
        os.environ.pop("PYTHONPATH", None)
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place, cwd=ROOT)
        (wheel,) = Path(place).glob("*.whl")
        with node(settings, Path(place), "worker", "-Q", "triggers,sweeps,effects", "-c", "2"):
            for versions in TRIED:
                if only in " ".join(versions):
                    print(f"{' '.join(versions) or 'the newest':50} {tried(versions, wheel, settings)}", flush=True)


if __name__ == "__main__":
    main()
