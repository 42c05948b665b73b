"""The Python client, and its code for applying triggers in its own process."""
