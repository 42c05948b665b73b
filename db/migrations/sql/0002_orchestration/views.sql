-- The seeds' views (SSOT 6.7, MVP 5.1).

CREATE VIEW state_transitions AS
    SELECT t.position AS transition_id, t.workflow_type AS entity_type, i.entity_id, t.from_state, t.to_state, t.trigger,
           t.metadata->>'reason' AS reason, t.metadata, t.metadata->>'operator' AS operator,
           t.created_at AS transitioned_at, t.workflow_id
      FROM workflow_transitions t JOIN workflow_instances i ON i.id = t.workflow_id;

CREATE VIEW worker_state_transitions AS
    SELECT t.position AS id, t.workflow_id AS worker_id, t.from_state, t.to_state, t.metadata->>'reason' AS reason,
           t.created_at AS "timestamp"
      FROM workflow_transitions t WHERE t.workflow_type = 'supervised_worker';

CREATE VIEW job_state_transitions AS
    SELECT t.position AS id, t.workflow_id AS job_id, t.from_state, t.to_state, t.metadata->>'reason' AS reason,
           t.created_at AS "timestamp"
      FROM workflow_transitions t WHERE t.workflow_type = 'job';
