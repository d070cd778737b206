"""Folders of made-up runs."""

from fabricate import fabricate_run as fabricate_run
from fabricate import runs_root as runs_root
