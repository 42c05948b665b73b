"""`interlock patch | quarantine | compensation | regression`."""
