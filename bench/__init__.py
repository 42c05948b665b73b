"""`make bench`: throughput, latency and memory, as ratios measured in one run on this machine."""
