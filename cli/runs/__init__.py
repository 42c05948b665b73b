"""`interlock run | runs | worker | breaker`: plans, and the workers and tools that carry them out."""
