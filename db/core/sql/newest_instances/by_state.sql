-- How many of the newest %(most)s instances of some projects are in each state: bounded, unlike a count of all.
SELECT workflow_type, current_state, count(*) AS many
  FROM (SELECT workflow_type, current_state FROM interlock.workflow_instances
         WHERE project = ANY (%(projects)s) ORDER BY id DESC LIMIT %(most)s) AS newest
 GROUP BY 1, 2 ORDER BY 1, 3 DESC
