"""An analysis by its name."""

from importlib import import_module

from peerlearn.analysis.runs import Found, Runs
from peerlearn.records.analysis import Analysis


def analyse(name: str, runs: Runs) -> Analysis:
    """Do an analysis of `ANALYSES`. Each is a file with TITLE, ABOUT and find(runs) -> Found."""
    module = import_module(f"peerlearn.analysis.{name}")
    found: Found = module.find(runs)
    about: str = module.ABOUT
    if runs.left_out:
        about += f" Left out: {'; '.join(runs.left_out)}."
    return Analysis(
        name=name,
        title=module.TITLE,
        about=f"{about:.4000}",
        runs=[*runs.seen.values()],
        facts=found.facts,
        panels=[*found.panels],
    )
