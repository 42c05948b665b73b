"""`interlock doctor | stuck | dead | metrics | playbook | operator | override`."""
