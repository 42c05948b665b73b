"""The documents, and what generates parts of them. A package, so that nothing installed can take its name."""
