"""Everything Interlock does with git, on repositories and patches (docs/spec/patch.md).

These are plain functions that effects call. They keep no state: each reads the repository, changes it as far as needed
to reach its goal, and returns the outcome as a value. So running one again after a crash is harmless.
"""
