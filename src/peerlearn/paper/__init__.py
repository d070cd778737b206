"""The CCL-DC paper as data: what its tables consist of, and what was published in them."""
