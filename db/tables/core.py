"""The engine's tables for SQLAlchemy. A test compares them with the migrations."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import CHAR, JSONB
from sqlalchemy.types import UserDefinedType

from interlock.db.schema import SCHEMA
from interlock.db.tables.columns import count, document, flag, instant, stamped

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
    Column("body", JSONB, nullable=False),
    Column("initial_state", String(100), nullable=False),
    stamped("recorded_at"),
)

definition_states = Table(
    "definition_states",
    metadata,
    Column("type", String(50), primary_key=True),
    Column("version", String(20), primary_key=True),
    Column("state", String(100), primary_key=True),
    Column("terminal", Boolean, nullable=False),
    ForeignKeyConstraint(["type", "version"], ["workflow_definitions.type", "workflow_definitions.version"]),
)

definition_transitions = Table(
    "definition_transitions",
    metadata,
    Column("type", String(50), primary_key=True),
    Column("version", String(20), primary_key=True),
    Column("source", String(100), primary_key=True),
    Column("trigger", String(100), primary_key=True),
    Column("dest", String(100), primary_key=True),
    *(
        ForeignKeyConstraint(
            ["type", "version", end],
            ["definition_states.type", "definition_states.version", "definition_states.state"],
        )
        for end in ("source", "dest")
    ),
)

instances = Table(
    "workflow_instances",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("workflow_type", String(50), nullable=False),
    Column("definition_version", String(20), nullable=False),
    Column("current_state", String(100), nullable=False),
    count("version"),
    Column("entity_id", String(100), nullable=False, index=False),
    Column("project", String(100), nullable=False),
    document("context"),
    Column("error", Text),
    count("retry_count"),
    Column("created_by", String(100), nullable=False),
    stamped("created_at"),
    stamped("updated_at"),
    UniqueConstraint("project", "workflow_type", "entity_id"),
    ForeignKeyConstraint(
        ["workflow_type", "definition_version", "current_state"],
        ["definition_states.type", "definition_states.version", "definition_states.state"],
    ),
    Index("workflow_instances_entity", "entity_id", "project"),
)

links = Table(
    "workflow_links",
    metadata,
    Column("source_id", Uuid, ForeignKey("workflow_instances.id"), primary_key=True),
    Column("role", String(100), primary_key=True),
    Column("inverse", String(100), nullable=False),
    Column("target_id", Uuid, ForeignKey("workflow_instances.id"), primary_key=True),
    stamped("created_at"),
    Index("workflow_links_target", "target_id"),
)

transitions = Table(
    "workflow_transitions",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("workflow_id", Uuid, ForeignKey("workflow_instances.id"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("workflow_type", String(50), nullable=False),
    Column("definition_version", String(20), nullable=False),
    Column("from_state", String(100), nullable=False),
    Column("to_state", String(100), nullable=False),
    Column("trigger", String(100), nullable=False),
    Column("triggered_by", String(100)),
    Column("request_id", String(200)),
    Column("severity", String(10), nullable=False, server_default="info"),
    document("metadata"),
    stamped("created_at"),
    Column("prev_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("xid", Xid8, nullable=False, server_default=func.pg_current_xact_id()),
    Column("position", BigInteger, Identity(always=True), nullable=False),
    UniqueConstraint("workflow_id", "seq"),
    Index("workflow_transitions_commit_order", "xid", "position", unique=True),
)

requests = Table(
    "trigger_requests",
    metadata,
    Column("seq", BigInteger, Identity(always=True), primary_key=True),
    Column("request_id", String(200), nullable=False, unique=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("workflow_id", Uuid, ForeignKey("workflow_instances.id"), nullable=False),
    Column(
        "partition",
        SmallInteger,
        Computed("get_byte(uuid_send(workflow_id), 15) % 16", persisted=True),
        nullable=False,
    ),
    Column("trigger", String(100), nullable=False),
    Column("triggered_by", String(100), nullable=False),
    document("metadata"),
    Column("origin", String(10), nullable=False, server_default="agent"),
    Column("bound_version", Integer),
    Column("status", String(10), nullable=False, server_default="pending"),
    stamped("not_before"),
    count("attempts"),
    Column("held_by", Uuid, ForeignKey("workflow_instances.id")),
    flag("granted"),
    Column("error", Text),
    Column("result", JSONB),
    stamped("accepted_at"),
    instant("finished_at"),
    Column("trace", String(55)),
    Index("trigger_requests_pending", "partition", "seq", postgresql_where=text("status = 'pending'")),
    Index("trigger_requests_scheduled", "not_before", postgresql_where=text("status = 'scheduled'")),
    Index(
        "trigger_requests_retrying",
        "workflow_id",
        "seq",
        postgresql_where=text("status = 'scheduled' AND attempts > 0"),
    ),
    Index("trigger_requests_waiting", "workflow_id", postgresql_where=text("status = 'waiting'")),
    Index("trigger_requests_held_by", "held_by", postgresql_where=text("held_by IS NOT NULL")),
    Index("trigger_requests_finished", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
    Index("trigger_requests_dead", "seq", postgresql_where=text("status = 'dead'")),
    Index("trigger_requests_instance", "workflow_id"),
)

effects = Table(
    "effects",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("workflow_id", Uuid, ForeignKey("workflow_instances.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("name", String(100), nullable=False),
    document("payload"),
    Column("done_trigger", String(100)),
    Column("failed_trigger", String(100)),
    Column("status", String(10), nullable=False, server_default="pending"),
    Column("token", BigInteger, nullable=False, server_default="0"),
    Column("leased_by", String(200)),
    instant("lease_until"),
    count("attempts"),
    stamped("not_before"),
    Column("exclusive", Text),
    Column("error", Text),
    Column("result", JSONB),
    stamped("created_at"),
    instant("finished_at"),
    Column("trace", String(55)),
    CheckConstraint("(status = 'leased') = (lease_until IS NOT NULL)"),
    Index("effects_pending", "not_before", postgresql_where=text("status = 'pending'")),
    Index("effects_leased", "lease_until", postgresql_where=text("status = 'leased'")),
    Index("effects_exclusive", "exclusive", unique=True, postgresql_where=text("status = 'leased'")),
    Index(
        "effects_queued",
        "exclusive",
        "not_before",
        postgresql_where=text("status = 'pending' AND exclusive IS NOT NULL"),
    ),
    Index("effects_workflow", "workflow_id"),
    Index("effects_finished", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
    Index("effects_dead", "workflow_id", postgresql_where=text("status = 'dead'")),
)

operators = Table(
    "operators",
    metadata,
    Column("grant_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", String(100), nullable=False),
    stamped("since"),
    Column("granted_by", String(100), nullable=False),
    instant("until"),
    Column("revoked_by", String(100)),
    CheckConstraint("until >= since"),
    Index("operators_name", "name"),
)

deprecations = Table(
    "deprecations",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("type", String(50), nullable=False),
    Column("version", String(20), nullable=False),
    Column("kind", String(10), nullable=False),
    Column("name", String(100), nullable=False),
    Column("deprecated_by", String(100), nullable=False),
    Column("reason", Text, nullable=False),
    Column("guide", Text, nullable=False, server_default=text("''::text")),
    stamped("deprecated_at"),
    Column("remove_after", DateTime(timezone=True), nullable=False),
    UniqueConstraint("type", "version", "kind", "name"),
    ForeignKeyConstraint(["type", "version"], ["workflow_definitions.type", "workflow_definitions.version"]),
)

deprecation_uses = Table(
    "deprecation_uses",
    metadata,
    Column("deprecation_id", BigInteger, ForeignKey("deprecations.id"), primary_key=True),
    Column("partition", SmallInteger, primary_key=True),
    Column("uses", BigInteger, nullable=False),
    Column("last_used_at", DateTime(timezone=True), nullable=False),
)

definition_removals = Table(
    "definition_removals",
    metadata,
    Column("type", String(50), primary_key=True),
    Column("version", String(20), primary_key=True),
    Column("removed_by", String(100), nullable=False),
    Column("reason", Text, nullable=False),
    stamped("removed_at"),
    ForeignKeyConstraint(["type", "version"], ["workflow_definitions.type", "workflow_definitions.version"]),
)

partition_watch = Table(
    "partition_watch",
    metadata,
    Column("partition", SmallInteger, primary_key=True, autoincrement=False),
    Column("head", BigInteger, nullable=False),
    stamped("since"),
    count("begun"),
    Column("suspect", BigInteger),
    count("strikes"),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("name", String(50), primary_key=True),
    Column("period_at", DateTime(timezone=True), nullable=False),
    Column("started_at", DateTime(timezone=True), nullable=False),
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
    Column("version", Integer, nullable=False),
    Column("workflow_type", String(50), nullable=False),
    Column("entity_id", String(100), nullable=False),
    Column("project", String(100), nullable=False),
    Column("state", String(100), nullable=False),
    Column("since", DateTime(timezone=True), nullable=False),
    Column("reason", Text, nullable=False),
    Column("command", Text, nullable=False),
    stamped("found_at"),
)

metric_values = Table(
    "metric_values",
    metadata,
    Column("name", String(80), primary_key=True),
    Column("labels", ARRAY(Text), primary_key=True),
    Column("value", Double, nullable=False),
)

metric_deltas = Table(
    "metric_deltas",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", String(80), nullable=False),
    Column("labels", ARRAY(Text), nullable=False),
    Column("value", Double, nullable=False),
)

anchors = Table(
    "anchors",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("made_at", DateTime(timezone=True), nullable=False),
    Column("body", Text, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)

anchor_heads = Table(
    "anchor_heads",
    metadata,
    Column("workflow_id", Uuid, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    Column("number", Integer, ForeignKey("anchors.number", deferrable=True, initially="DEFERRED"), nullable=False),
    Index("anchor_heads_number", "number", "workflow_id", "seq"),
)

audit_exports = Table(
    "audit_exports",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("made_at", DateTime(timezone=True), nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("manifest", CHAR(64), nullable=False),
)

restores = Table(
    "restores",
    metadata,
    Column("first_xid", Xid8, primary_key=True),
    stamped("restored_at"),
    Column("taken_at", DateTime(timezone=True), nullable=False),
    Column("backup", Text, nullable=False),
)
