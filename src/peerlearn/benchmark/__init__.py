"""Benchmarks: what the program costs on this machine, next to the bare arithmetic."""
