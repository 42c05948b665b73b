"""The triggers that protect tables, and whether they are in force: each must exist and be `ENABLE ALWAYS`."""

from collections.abc import Mapping

from sqlalchemy import Connection, text

from interlock.db.schema import SCHEMA

# Table -> its triggers, as the migrations create them (checked by tests/architecture/test_schema.py).
TRIGGERS: Mapping[str, str] = {
    "anchor_heads": "kept kept_whole",
    "anchors": "kept kept_whole",
    "api_tokens": "judged kept kept_whole state_in_history worded",
    "archived_instances": "kept kept_whole moved_whole takes",
    "archived_links": "kept kept_whole takes",
    "archived_records": "kept kept_whole",
    "archived_transitions": "kept kept_whole takes",
    "audit_exports": "kept kept_whole",
    "brakes": "brake_in_history",
    "breaker_configurations": "configures kept kept_whole worded",
    "budgets": "budget_in_history",
    "circuit_breakers": "configuration_in_history kept kept_whole not_in_future state_in_history worded",
    "commands": (
        "bounded_env bounded_env_from bounded_limits bounded_sandbox kept kept_whole made record_body_digests shown"
    ),
    "definition_states": "as_recorded kept kept_whole worded",
    "definition_transitions": "as_recorded kept kept_whole worded",
    "deprecations": "judged kept kept_whole state_in_history worded",
    "effects": "belongs_fixed bounded_payload bounded_progress bounded_result not_lost noted within_limits worded",
    "handovers": "handover_in_history",
    "jobs": "kept kept_whole not_in_future state_in_history worded",
    "limits": "limit_in_history",
    "link_changes": "by_links_only kept kept_whole stays",
    "operators": "judged kept kept_whole state_in_history worded",
    "patch_ledger_entries": (
        "belongs_fixed bounded_metadata bounded_quarantine_metadata bounded_rollback_compensation "
        "bounded_state_history kept kept_whole not_in_future past_fixed state_in_history worded"
    ),
    "patches": "kept kept_whole worded",
    "phases": "worded",
    "plans": "bounded_body kept kept_whole made record_body_digests",
    "runs": "bounded_metadata kept kept_whole not_in_future state_in_history",
    "schedules": "login_fixed",
    "schema_states": "bounded_objects kept kept_whole",
    "subscriptions": "bounded_answer subscription_in_history",
    "supervised_workers": "bounded_metadata kept kept_whole not_in_future state_in_history worded",
    "task_claims": "claim_deleted claim_ended claim_taken",
    "tasks": (
        "belongs_fixed bounded_metadata critical_fixed kept kept_whole not_in_future sound state_in_history worded"
    ),
    "test_gates": "belongs_fixed bounded_command kept kept_whole not_in_future state_in_history",
    "trigger_requests": "accept accepted_fixed approved bounded_metadata bounded_result not_lost noted sound worded",
    "verifications": "bounded_found",
    "workers": "affinity_fixed bounded_affinity kept kept_whole not_in_future state_in_history worded",
    "workflow_definitions": "bounded_body kept kept_whole worded",
    "workflow_instances": (
        "born born_tasks born_typed bounded_bodies bounded_context context_fixed counted_birth counted_departure "
        "identity_fixed kept kept_whole narrower no_command no_uuid not_archived not_by_clients one_spelling "
        "state_has_history version_stands worded"
    ),
    "workflow_links": "links_own noted noted_new own_workers worded",
    "workflow_transitions": (
        "add_facts append authorised bounded_metadata history_has_state kept kept_whole migrated_typed "
        "moved_tasks moved_typed narrows policy_dependencies worded"
    ),
    "workstreams": "belongs_fixed bounded_metadata kept kept_whole not_in_future of_the_plan state_in_history worded",
}


def missing(connection: Connection) -> list[str]:
    """The missing protecting triggers, each as `table.trigger` (should be none)."""
    return [f"{table}.{trigger}" for table, trigger in sorted(_expected() - set(_states(connection)))]


def switched_off(connection: Connection) -> Mapping[str, list[str]]:
    """Table -> its protecting triggers that somebody has switched off or weakened (should be none)."""
    off: dict[str, list[str]] = {}
    for (table, trigger), enabled in sorted(_states(connection).items()):
        if enabled != "A" and (table, trigger) in _expected():
            off.setdefault(table, []).append(trigger)
    return off


def _expected() -> set[tuple[str, str]]:
    return {(table, trigger) for table, triggers in TRIGGERS.items() for trigger in triggers.split()}


def _states(connection: Connection) -> dict[tuple[str, str], str]:
    """(table, trigger) -> `tgenabled`, for all triggers of the schema."""
    question = text(
        "SELECT c.relname, t.tgname, t.tgenabled::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND NOT t.tgisinternal"
    )
    rows = connection.execute(question, {"schema": SCHEMA})
    return {(table, trigger): enabled for table, trigger, enabled in rows}
