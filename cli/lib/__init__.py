"""Code shared by the commands: output, errors, signals, parsing of options."""
