"""The plans of `interlock run`: text in, a checked plan out. Nothing here opens a file."""
