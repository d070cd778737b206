"""Runs as one self-contained HTML page; needs neither torch nor a network."""

from peerlearn.report.page import render

__all__ = ["render"]
