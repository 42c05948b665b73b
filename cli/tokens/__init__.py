"""`interlock token`."""
