"""`interlock audit | archive | backup | restore`."""
