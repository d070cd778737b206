"""Run folders as one self-contained HTML page; needs neither torch nor a network."""

from peerlearn.report.page import render
from peerlearn.report.reading import Run, read_runs

__all__ = ["Run", "read_runs", "render"]
