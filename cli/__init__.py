"""The `interlock` command: reads arguments, calls the client, prints. No logic of its own."""
