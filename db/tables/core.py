"""The engine's tables, as far as SQLAlchemy reads or writes them: their columns.

The migrations make all tables, with defaults, constraints and indexes. A test compares the columns with theirs.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import CHAR, JSONB
from sqlalchemy.types import UserDefinedType

from interlock.db.schema import SCHEMA
from interlock.db.tables.columns import count, document, flag, instant, stamped, words

metadata = MetaData(schema=SCHEMA)


class Xid8(UserDefinedType[int]):
    """A full transaction id, which never wraps around (PostgreSQL 13 and newer)."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """The type's name in DDL."""
        return "xid8"


definitions = Table(
    "workflow_definitions",
    metadata,
    Column("type", String(50), primary_key=True),
    Column("version", String(20), primary_key=True),
    Column("checksum", CHAR(64), nullable=False),
    document("body"),
    Column("initial_state", String(100), nullable=False),
    stamped("recorded_at"),
)

definition_states = Table(
    "definition_states",
    metadata,
    Column("type", String(50), primary_key=True),
    Column("version", String(20), primary_key=True),
    Column("state", String(100), primary_key=True),
    flag("terminal"),
)

definition_transitions = Table(
    "definition_transitions",
    metadata,
    Column("type", String(50), primary_key=True),
    Column("version", String(20), primary_key=True),
    Column("source", String(100), primary_key=True),
    Column("trigger", String(100), primary_key=True),
    Column("dest", String(100), primary_key=True),
    words("by"),
    Column("event", String(100)),
)

instances = Table(
    "workflow_instances",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("workflow_type", String(50), nullable=False),
    Column("definition_version", String(20), nullable=False),
    Column("current_state", String(100), nullable=False),
    count("version"),
    Column("entity_id", String(100), nullable=False),
    Column("project", String(100), nullable=False),
    document("context"),
    Column("error", Text),
    count("retry_count"),
    Column("created_by", String(100), nullable=False),
    stamped("created_at"),
    stamped("updated_at"),
    Column("born_version", String(20), nullable=False),
    Column("context_sha256", LargeBinary, nullable=False),
    Column("bodies", JSONB),
    Column("born_proof", String(200)),
)

links = Table(
    "workflow_links",
    metadata,
    Column("source_id", Uuid, primary_key=True),
    Column("role", String(100), primary_key=True),
    Column("inverse", String(100), nullable=False),
    Column("target_id", Uuid, primary_key=True),
    stamped("created_at"),
)

transitions = Table(
    "workflow_transitions",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("workflow_id", Uuid, nullable=False),
    count("seq"),
    Column("workflow_type", String(50), nullable=False),
    Column("definition_version", String(20), nullable=False),
    Column("from_state", String(100), nullable=False),
    Column("to_state", String(100), nullable=False),
    Column("trigger", String(100), nullable=False),
    Column("triggered_by", String(100)),
    Column("request_id", String(200)),
    Column("authority", String(10), nullable=False),
    Column("proof", String(200)),
    Column("login", String(63), nullable=False),
    Column("severity", String(10), nullable=False),
    document("metadata"),
    stamped("created_at"),
    Column("prev_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("xid", Xid8, nullable=False),
    Column("position", BigInteger, Identity(always=True), nullable=False),
)

requests = Table(
    "trigger_requests",
    metadata,
    Column("seq", BigInteger, Identity(always=True), primary_key=True),
    Column("request_id", String(200), nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("workflow_id", Uuid, nullable=False),
    Column("partition", SmallInteger, nullable=False),
    Column("trigger", String(100), nullable=False),
    Column("triggered_by", String(100), nullable=False),
    document("metadata"),
    Column("origin", String(10), nullable=False),
    Column("bound_version", Integer),
    Column("authority", String(10), nullable=False),
    Column("proof", String(200)),
    Column("login", String(63), nullable=False),
    Column("status", String(10), nullable=False),
    stamped("not_before"),
    count("attempts"),
    Column("held_by", Uuid),
    flag("granted"),
    Column("error", Text),
    Column("result", JSONB),
    stamped("accepted_at"),
    instant("finished_at"),
    Column("trace", String(55)),
)

effects = Table(
    "effects",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("workflow_id", Uuid, nullable=False),
    count("version"),
    Column("name", String(100), nullable=False),
    Column("queue", String(50), nullable=False),
    document("payload"),
    Column("done_trigger", String(100)),
    Column("failed_trigger", String(100)),
    Column("status", String(10), nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("leased_by", String(200)),
    instant("lease_until"),
    count("attempts"),
    stamped("not_before"),
    Column("exclusive", Text),
    Column("limit_key", String(100)),
    Column("error", Text),
    Column("progress", JSONB),
    Column("result", JSONB),
    stamped("created_at"),
    instant("finished_at"),
    Column("trace", String(55)),
)

operators = Table(
    "operators",
    metadata,
    Column("grant_id", Uuid, primary_key=True),
    Column("state", String(20), nullable=False),
    Column("name", String(100), nullable=False),
    Column("granted_by", String(100), nullable=False),
    Column("reason", Text),
    instant("since"),
    instant("until"),
    instant("ended_at"),
    Column("revoked_by", String(100)),
)

deprecations = Table(
    "deprecations",
    metadata,
    Column("deprecation_id", Uuid, primary_key=True),
    Column("state", String(20), nullable=False),
    Column("type", String(50), nullable=False),
    Column("version", String(20), nullable=False),
    Column("kind", String(10), nullable=False),
    Column("name", String(100), nullable=False),
    Column("deprecated_by", String(100), nullable=False),
    Column("reason", Text),
    Column("guide", Text, nullable=False),
    instant("deprecated_at"),
    instant("remove_after"),
    Column("removal_proposed_by", String(100)),
    Column("removed_by", String(100)),
    instant("removed_at"),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("name", String(50), primary_key=True),
    stamped("period_at"),
    stamped("started_at"),
    instant("finished_at"),
    Column("found", Integer),
)

relay_cursors = Table(
    "relay_cursors",
    metadata,
    Column("name", String(50), primary_key=True),
    Column("xid", Xid8, nullable=False),
    Column("position", BigInteger, nullable=False),
)

stuck_entities = Table(
    "stuck_entities",
    metadata,
    Column("workflow_id", Uuid, primary_key=True),
    count("version"),
    Column("workflow_type", String(50), nullable=False),
    Column("entity_id", String(100), nullable=False),
    Column("project", String(100), nullable=False),
    Column("state", String(100), nullable=False),
    stamped("since"),
    Column("reason", Text, nullable=False),
    Column("command", Text, nullable=False),
    stamped("found_at"),
)
