"""`interlock create | fire | show | list | history`."""
