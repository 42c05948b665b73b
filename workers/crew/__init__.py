"""The crew: workers that register, heartbeat, claim tasks, carry them out and report under the claim's token."""
