"""Other forms of a definition, to take it elsewhere (docs/forms.md)."""
