"""What `interlock run` reads: text in, a checked plan out. Nothing here opens a file."""
