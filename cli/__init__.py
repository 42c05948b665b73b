"""The `interlock` command: reads arguments, calls the client, prints the result. It holds no logic of its own."""
