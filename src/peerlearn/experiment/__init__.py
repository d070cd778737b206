"""Runs: settings, training and evaluation, and the folder that a run leaves behind."""
