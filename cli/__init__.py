"""The `interlock` command: reads arguments, calls the client, prints the result. It holds no logic of its own."""

COMPLETING = "_INTERLOCK_COMPLETE"  # set by a shell that asks what the Tab key should offer (cli/server/completion.py)
