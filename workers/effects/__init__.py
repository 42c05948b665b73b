"""Effects: actions on the world under a lease. The end of an effect fires a trigger."""
