-- The instance follows the event of its migration; PostgreSQL lets its version change for nothing else.
UPDATE interlock.workflow_instances
   SET definition_version = %(definition_version)s, current_state = %(to_state)s, version = %(seq)s, updated_at = now()
 WHERE id = %(workflow_id)s AND version = %(seq)s - 1
