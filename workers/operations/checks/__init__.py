"""The checks that `interlock doctor` makes, by what they look at."""
