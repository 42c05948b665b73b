"""`interlock schedule`."""
