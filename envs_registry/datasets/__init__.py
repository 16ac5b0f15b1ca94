"""Published data sets: one row per set, readers for local files and the hub, repairs of known faults."""
