"""Runs and learners that are killed anywhere, or work for long; long.py is the long form."""
