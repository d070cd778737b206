"""The wrappers: CCL-DC and its ablations, and those with EMA teachers."""
