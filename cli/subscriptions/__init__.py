"""`interlock subscription`."""
