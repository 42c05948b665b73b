"""Running commands: `command` says what, `run` does it, `finished` tells how it ended.

A command runs below a process of its own, the warden (`warden`, `launch`, `tree`), which ends the command's whole tree
when its time is up, when it is cancelled, and when the process that asked for it dies.
"""
