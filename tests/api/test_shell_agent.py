"""The agent in shell of `examples/`: curl and jq against the API as it is served."""

import os
import shutil
import subprocess
from pathlib import Path
from uuid import UUID

import pytest
from httpx import Client as HttpClient

from interlock.workers.client.client import Client
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.settings import Settings
from tests.calling import bearing, token
from tests.driving import drain_all
from tests.http_rights import PLAN
from tests.serving import served_here

pytestmark = pytest.mark.integration
AGENT = Path(__file__).parents[2] / "examples" / "agent.sh"
LONGEST = 15  # lines

needs_programs = pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="curl or jq is missing")


@needs_programs
def test_an_agent_of_a_few_lines_registers_claims_says_and_reports(
    settings: Settings, client: Client, ann: None
) -> None:
    assert len(AGENT.read_text().splitlines()) <= LONGEST
    ann, bot = token(client.runtime, "ann", "operator"), token(client.runtime, "bot")
    with served_here(settings) as url, HttpClient(base_url=url, headers=bearing(ann)) as http:
        sent = http.post(
            "/api/runs?name=r",
            content=PLAN.replace("write a test", r"'write \\n a test'"),
            headers={"Content-Type": "application/yaml"},
            timeout=60,
        )
        run = sent.raise_for_status().json()["id"]
        while drain_all(client.runtime) + schedule(client.runtime, UUID(run)):
            pass
        own = os.environ | {"API": url, "TOKEN": bot, "WAIT": "1", "AGENT": "tr a-z A-Z"}
        ended = subprocess.run([AGENT], env=own, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        drain_all(client.runtime)
        (result,) = http.get("/api/runs/r/results").json()["items"]
        assert (result["task"], result["state"], result["exit_code"]) == ("w/t", "completed", 0)
        log = http.get("/api/runs/r/logs?task=w/t").json()
        log |= http.get(f"/api/runs/r/logs?task=w/t&after={log['next']}").json() | {"text": log["text"]}
    assert (log["text"], log["reported"]["stdout"], log["worker"]) == ("at work on r/w/t\n", r"WRITE \\N A TEST", "bot")
