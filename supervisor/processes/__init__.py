"""The processes of `interlock up`: their table, and how each is started, watched and ended."""
