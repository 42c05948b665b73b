-- How often a patch was applied again.
SELECT ledger_id AS workflow_id, apply_retries FROM interlock.patch_ledger_entries WHERE ledger_id = ANY(%(ids)s)
