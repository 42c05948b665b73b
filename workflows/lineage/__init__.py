"""The older machines, as versions below 1.0.0 (seeds 000 and 001). New instances use the newest instead."""
