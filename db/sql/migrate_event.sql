-- The event of a migration, before the instance's row changes: the `append` trigger asks where the instance stands now.
INSERT INTO interlock.workflow_transitions (id, workflow_id, seq, workflow_type, definition_version, from_state, to_state, trigger,
                                  triggered_by, severity, metadata)
VALUES (%(id)s, %(workflow_id)s, %(seq)s, %(workflow_type)s, %(definition_version)s, %(from_state)s, %(to_state)s,
        %(trigger)s, %(triggered_by)s, 'warning', %(metadata)s::jsonb)
