"""`interlock job | supervise`: supervised workers and their jobs."""
