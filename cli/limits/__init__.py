"""`interlock limit`."""
