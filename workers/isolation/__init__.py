"""The isolation of commands on this machine: tested, chosen, reported."""
