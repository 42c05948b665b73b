"""The engine's tables, as far as SQLAlchemy reads or writes them: their columns.

The migrations make all tables, with defaults, constraints and indexes. A test compares the columns with theirs.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Integer,
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
from interlock.db.tables.columns import (
    codes,
    counts,
    digests,
    documents,
    flags,
    instants,
    names,
    optional,
    references,
    short_codes,
    stamps,
    texts,
    type_names,
    words,
)

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
    *type_names("type", primary_key=True),
    *codes("version", primary_key=True),
    Column("checksum", CHAR(64), nullable=False),
    *documents("body"),
    *names("initial_state"),
    *stamps("recorded_at"),
)

definition_states = Table(
    "definition_states",
    metadata,
    *type_names("type", primary_key=True),
    *codes("version", primary_key=True),
    *names("state", primary_key=True),
    *flags("terminal"),
)

definition_transitions = Table(
    "definition_transitions",
    metadata,
    *type_names("type", primary_key=True),
    *codes("version", primary_key=True),
    *names("source", "trigger", "dest", primary_key=True),
    *words("by"),
    *optional(String(100), "event"),
)

instances = Table(
    "workflow_instances",
    metadata,
    *references("id", primary_key=True),
    *type_names("workflow_type"),
    *codes("definition_version"),
    *names("current_state"),
    *counts("version"),
    *names("entity_id", "project"),
    *documents("context"),
    *optional(Text, "error"),
    *counts("retry_count"),
    *names("created_by"),
    *stamps("created_at", "updated_at"),
    *codes("born_version"),
    *digests("context_sha256"),
    *optional(JSONB, "bodies"),
    *optional(String(200), "born_proof"),
)

links = Table(
    "workflow_links",
    metadata,
    *references("source_id", primary_key=True),
    *names("role", primary_key=True),
    *names("inverse"),
    *references("target_id", primary_key=True),
    *stamps("created_at"),
)

transitions = Table(
    "workflow_transitions",
    metadata,
    *references("id", primary_key=True),
    *references("workflow_id"),
    *counts("seq"),
    *type_names("workflow_type"),
    *codes("definition_version"),
    *names("from_state", "to_state", "trigger"),
    *optional(String(100), "triggered_by"),
    *optional(String(200), "request_id"),
    *short_codes("authority"),
    *optional(String(200), "proof"),
    Column("login", String(63), nullable=False),
    *short_codes("severity"),
    *documents("metadata"),
    *stamps("created_at"),
    *digests("prev_hash", "hash"),
    Column("xid", Xid8, nullable=False),
    Column("position", BigInteger, Identity(always=True), nullable=False),
)

requests = Table(
    "trigger_requests",
    metadata,
    Column("seq", BigInteger, Identity(always=True), primary_key=True),
    Column("request_id", String(200), nullable=False),
    *digests("fingerprint"),
    *references("workflow_id"),
    Column("partition", SmallInteger, nullable=False),
    *names("trigger", "triggered_by"),
    *documents("metadata"),
    *short_codes("origin"),
    *optional(Integer, "bound_version"),
    *short_codes("authority"),
    *optional(String(200), "proof"),
    Column("login", String(63), nullable=False),
    *short_codes("status"),
    *stamps("not_before"),
    *counts("attempts"),
    *optional(Uuid, "held_by"),
    *flags("granted"),
    *optional(Text, "error"),
    *optional(JSONB, "result"),
    *stamps("accepted_at"),
    *instants("finished_at"),
    Column("trace", String(55)),
)

effects = Table(
    "effects",
    metadata,
    *references("id", primary_key=True),
    *references("workflow_id"),
    *counts("version"),
    *names("name"),
    *type_names("queue"),
    *documents("payload"),
    *optional(String(100), "done_trigger", "failed_trigger"),
    *short_codes("status"),
    Column("token", BigInteger, nullable=False),
    *optional(String(200), "leased_by"),
    *instants("lease_until"),
    *counts("attempts"),
    *stamps("not_before"),
    *optional(Text, "exclusive"),
    *optional(String(100), "limit_key"),
    *optional(Text, "error"),
    *optional(JSONB, "progress", "result"),
    *stamps("created_at"),
    *instants("finished_at"),
    Column("trace", String(55)),
)

operators = Table(
    "operators",
    metadata,
    *references("grant_id", primary_key=True),
    *codes("state"),
    *names("name", "granted_by"),
    *optional(Text, "reason"),
    *instants("since", "until", "ended_at"),
    *optional(String(100), "revoked_by"),
)

deprecations = Table(
    "deprecations",
    metadata,
    *references("deprecation_id", primary_key=True),
    *codes("state"),
    *type_names("type"),
    *codes("version"),
    *short_codes("kind"),
    *names("name", "deprecated_by"),
    *optional(Text, "reason"),
    *texts("guide"),
    *instants("deprecated_at", "remove_after"),
    *optional(String(100), "removal_proposed_by", "removed_by"),
    *instants("removed_at"),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("name", String(50), primary_key=True),
    *stamps("period_at", "started_at"),
    *instants("finished_at"),
    *optional(Integer, "found"),
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
    *references("workflow_id", primary_key=True),
    *counts("version"),
    *type_names("workflow_type"),
    *names("entity_id", "project", "state"),
    *stamps("since"),
    *texts("reason", "command"),
    *stamps("found_at"),
)
