"""Runs commands: `command` describes one, `process` runs it, `result` describes how it ended.

A command runs below a process of its own, the shim (`shim`, `launch`). The shim ends the command's whole process tree
when the time limit is reached, when it is cancelled, and when the process that started it dies.
"""
