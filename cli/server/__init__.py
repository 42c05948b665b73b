"""`interlock up | down | status`."""
