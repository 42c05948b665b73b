"""`interlock definitions | deprecate | migration`."""
