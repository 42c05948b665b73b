"""Workers: they register, send heartbeats, claim tasks, carry them out and report under the claim's token."""
