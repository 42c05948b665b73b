"""The first pages over a million instances: as quick and as small as over none."""

from time import monotonic

import psycopg
import pytest

from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from tests import databases
from tests.tampering import unprotected
from tests.visiting import Visits

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
MANY = 1_000_000
MOST_SECONDS, MOST_BYTES = 0.3, 300_000
FILL = """
INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project, created_by,
                                born_version, context_sha256)
SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
       CASE WHEN n % 1000 = 0 THEN 'pr_review' ELSE 'story' END, '1.0.0',
       CASE WHEN n % 7 = 0 THEN 'design' ELSE 'analysis' END, 'M-' || n,
       CASE WHEN n % 3 = 0 THEN 'other' ELSE 'default' END,
       'x', '1.0.0', '\\x00' FROM generate_series(1, %d) AS n
"""


def test_the_first_pages_are_quick_and_small_over_a_million_instances(
    visit: Visits, client: Client, settings: Settings, servers: Servers
) -> None:
    assert settings.database_url is not None
    superuser = databases.as_superuser(servers, settings.database_url)
    with psycopg.connect(superuser, autocommit=True) as dba, unprotected(dba, "workflow_instances"):
        dba.execute(FILL.replace("%d", str(MANY)))  # its own `%` are SQL's
        dba.execute("ANALYZE workflow_instances")
    for visitor in (visit.by("ann", "admin", None), visit.by("bot")):
        for path in (
            "/",
            "/boards/story",
            "/boards/pr_review",
            "/instances",
            "/instances?name=M-77",
            "/find?words=M-77",
            "/?project=default",
        ):
            seconds = []
            for _ in range(5):
                began = monotonic()
                page = visitor.get(path)
                seconds.append(monotonic() - began)
                assert page.status_code == 200
            assert min(seconds) < MOST_SECONDS, (path, seconds)
            assert len(page.content) < MOST_BYTES, path
