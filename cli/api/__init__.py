"""`interlock api`."""
