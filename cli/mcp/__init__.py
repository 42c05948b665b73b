"""`interlock mcp`."""
