"""PostgreSQL is frozen: it takes connections and answers nothing. Whoever asks is told so within ten seconds."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

import psutil
import pytest
from httpx import Client as HttpClient
from httpx import Response

from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from tests.calling import bearing, token
from tests.serving import serving
from tests.tampering import Dba
from tests.visiting import link
from tests.waiting import eventually

pytestmark = pytest.mark.integration

WITHIN_SECONDS = 10.0
UNAVAILABLE = "urn:interlock:problem:unavailable"


@contextmanager
def frozen(dba: Dba) -> Iterator[None]:
    """All of PostgreSQL stands still while the block runs."""
    (backend,) = dba.execute("SELECT pg_backend_pid()").fetchone() or ()
    postmaster = psutil.Process(psutil.Process(backend).ppid())
    backends: list[psutil.Process] = []
    try:
        postmaster.suspend()  # first, or it would start more of them
        backends += postmaster.children(recursive=True)
        for each in backends:
            with suppress(psutil.NoSuchProcess):  # it ended by itself meanwhile
                each.suspend()
        yield
    finally:
        for each in [*backends, postmaster]:
            with suppress(psutil.NoSuchProcess):
                each.resume()


def test_every_request_is_answered_within_ten_seconds_and_works_again_afterwards(
    settings: Settings, client: Client, ann: None, dba: Dba, tmp_path: Path
) -> None:
    story = client.create("story", "S-1")["id"]
    bearer = bearing(token(client.runtime, "ann", "operator", None))
    secret = link(client.runtime, "ann", "admin", None)
    with (
        serving(settings, tmp_path / "api.log") as (_, url),
        HttpClient(base_url=url, headers=bearer, timeout=60) as http,
        HttpClient(base_url=url, timeout=60) as browser,
    ):
        own = {"Sec-Fetch-Site": "same-origin", "Origin": url}
        assert browser.post("/sign-in", data={"link": secret}, headers=own).status_code == 303

        def fire() -> Response:
            return http.post("/api/triggers?wait=30", json={"instance": str(story), "trigger": "block"})

        def redrive() -> Response:
            return http.post("/api/dead/redrive?project=default", json={"all": True, "reason": "a test"})

        def timed(ask: object) -> tuple[Response, float]:
            began = monotonic()
            return ask(), monotonic() - began  # type: ignore[operator]

        programs = [
            lambda: http.get("/api/instances"),
            lambda: http.get(f"/api/history/{story}"),
            fire,
            redrive,
            *[lambda: http.get("/api/stuck")] * 20,  # more than there are connections
        ]
        pages = [lambda: browser.get("/"), lambda: browser.get(f"/instances/{story}")]
        with ThreadPoolExecutor(40) as threads:
            for each in (*programs[:2], redrive, *pages):
                assert each().status_code == 200
            acting = [threads.submit(timed, redrive) for _ in range(6)]  # some are under way when it freezes
            with frozen(dba):
                asked = [threads.submit(timed, each) for each in programs]
                looked = [threads.submit(timed, each) for each in pages]
                ready, seconds = timed(lambda: http.get("/api/ready"))
                assert (ready.status_code, ready.json()["type"]) == (503, UNAVAILABLE)
                assert "PostgreSQL does not answer" in ready.json()["detail"]
                assert seconds < WITHIN_SECONDS
                assert http.get("/api/health").status_code == 200
                for answer, seconds in (each.result() for each in asked):
                    assert (answer.status_code, answer.json()["type"]) == (503, UNAVAILABLE), answer.text
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert answer.headers["retry-after"] == "1"
                    assert seconds < WITHIN_SECONDS, answer.request.url
                for answer, seconds in (each.result() for each in looked):
                    assert (answer.status_code, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")
                    assert "interlock doctor" in answer.text
                    assert seconds < WITHIN_SECONDS
                for answer, seconds in (each.result() for each in acting):
                    assert answer.status_code in {200, 503}
                    assert seconds < WITHIN_SECONDS
        eventually(lambda: http.get("/api/ready").status_code == 200)
        for each in (*programs[:2], redrive, *pages):
            assert each().status_code == 200
