"""`interlock budget` and `interlock brake`."""
