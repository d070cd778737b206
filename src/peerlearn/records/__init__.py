"""The files of a run: one schema, one place that writes them, one that reads them; no torch."""
