"""What doors stand on: a directory, and for some of them a database of their own on the embedded servers."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from interlock.supervisor.embedded import running
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases
from tests.fuzz.door import Door, Ground
from tests.homes import open_directory

NOWHERE = {"database_url": "postgresql://127.0.0.1:1/nobody", "broker_url": "redis://127.0.0.1:1/0"}


@contextmanager
def ground(door: Door, directory: Path) -> Iterator[Ground]:
    """A door's ground for as long as the block runs; servers are started where it needs them."""
    inside = directory / "ground"
    inside.mkdir()
    with _addresses() if door.on_database else nullcontext(NOWHERE) as addresses:
        settings = Settings(home=directory / "home", **addresses)
        with closing(Runtime(settings)) as runtime:
            yield Ground(inside, runtime)


@contextmanager
def _addresses() -> Iterator[dict[str, str]]:
    with open_directory() as home, running(Settings(home=home / "home")) as servers:
        template = databases.make_template(servers)
        with databases.copy_of(servers, template) as url:
            yield {"database_url": url, "broker_url": servers.broker_url}
