"""`interlock demo`, whole: what it is to show happens, a worker killed in the middle included, and nothing is left."""

import pytest

from supervisor import strays
from supervisor.home import home_of
from supervisor.supervise import data_places
from tests.cli.terminal import Terminal
from workers.settings import Settings

PATIENCE_SECONDS = 400.0


@pytest.mark.timeout(PATIENCE_SECONDS + 60)
def test_the_demo_shows_what_it_is_for_and_ends_well(tmp_path_factory: pytest.TempPathFactory) -> None:
    here = Terminal(tmp_path_factory.mktemp("demo") / "home")
    with here.start("demo") as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, out + err
    for words in ("SIGKILL to worker process", "quarantined", "run again", "rolled back", "audit verify: ok"):
        assert words in out
    assert "not shown" not in out
    home = home_of(Settings(home=here.home / "demo"))
    assert not strays.of_home(home, data_places(home))
