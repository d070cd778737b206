"""Runs compared: one function decides what is averaged and paired, every face asks it; no torch."""
