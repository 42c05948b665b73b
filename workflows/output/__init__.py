"""Text for people: escaped text, commands to paste, URLs without secrets."""
