"""What `--precision auto` is on this machine."""

from collections.abc import Sequence
from pathlib import Path

from peerlearn.experiment.identity import folder_of
from peerlearn.experiment.resolve import PRECISION, Resolved
from peerlearn.nets.processor import bf16_trial

MARGIN = 1.15  # how many times as fast bf16 must be to be worth its rounding
USUAL_WIDTH = 16  # of the network that is timed where the run's has no width


def settle_precision(runs: Sequence[Resolved], out: Path) -> tuple[list[Resolved], list[str]]:
    """Runs whose precision is known, and a line for each choice that was made.

    What was chosen when one of these runs was begun is chosen again, so that the same command goes
    on with it. out: the folder of all runs.
    """
    chosen: dict[tuple[str, int], tuple[str, str]] = {}  # by device and width: choice and reason
    settled = []
    begun = next((found for one in runs if (found := _begun(one, out))), "")
    for one in runs:
        if one.values[PRECISION] != "auto":
            settled.append(one)
            continue
        kind = (str(one.values["machine.device"]), int(one.values.get("net.width", USUAL_WIDTH)))
        if kind not in chosen:
            chosen[kind] = (begun, "as when these runs were begun") if begun else _choice(*kind)
        settled.append(one.with_precision(chosen[kind][0]))
    lines = [f"precision auto: {choice}, {reason}" for choice, reason in chosen.values()]
    return settled, lines


def _begun(one: Resolved, out: Path) -> str:
    """The precision that was chosen for a run when it was begun, "" if there was none."""
    if one.values[PRECISION] != "auto":
        return ""
    for precision in ("bf16", "fp32"):
        found = folder_of(one.with_precision(precision), out).config()
        if found is not None and found.origins.get(PRECISION) == "auto":
            return precision
    return ""


def _choice(device: str, width: int) -> tuple[str, str]:
    """A precision, and why."""
    if device != "cpu":
        return "fp32", f"bf16 was not timed on {device}; --precision bf16 takes it"
    fault, gain = bf16_trial(width)
    if fault:
        return "fp32", f"a trial of bf16 in a process of its own {fault}"
    if gain < MARGIN:
        return "fp32", f"bf16 is only {gain:.2f} times as fast on this processor"
    return "bf16", f"{gain:.2f} times as fast as fp32 on this processor"
