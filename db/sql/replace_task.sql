-- Another task takes a task's place: whoever waits for the old one waits for the new, and gates judge only that.
WITH waiting AS (
    UPDATE interlock.workflow_links SET target_id = %(new)s WHERE target_id = %(old)s AND role = 'depends_on'
), judged AS (
    UPDATE interlock.workflow_links SET role = 'waived', inverse = 'waived_by' WHERE source_id = %(old)s AND role = 'gates'
)
UPDATE interlock.tasks SET left_out = true WHERE task_id = %(old)s
