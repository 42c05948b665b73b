"""Commands as forks of a process that has imported them already: `interlock` starts in a tenth of the time."""
