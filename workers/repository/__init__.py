"""Repositories and patches: everything Interlock does with git (issue 3, SSOT 2.2 and 2.5).

Plain functions that effects call. They keep no state of their own: each looks at the repository, brings it to the end
asked for, and returns a value that tells the outcome, so that running one again after a crash is harmless.
"""
