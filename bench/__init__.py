"""`make bench`: how fast, how soon and how lean, as ratios measured in one run on this machine."""
