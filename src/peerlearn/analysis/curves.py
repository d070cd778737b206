"""Lines of probes.jsonl over the stream: what `loss` and `disagreement` have in common."""

from typing import Literal

from peerlearn.analysis.runs import Found, Runs, again
from peerlearn.records.analysis import Curve, Lines
from peerlearn.records.read import RunRecord

Probe = Literal["current_loss", "disagreement"]


def curves(runs: Runs, probe: Probe, *, title: str, y: str, log: bool) -> Found:
    """A line for each run that was asked about this on the way."""
    flag = f"--{probe.replace('_', '-')} 10"

    def asked(run: RunRecord) -> bool:
        return any(getattr(line, probe) is not None for line in run.probes)

    def remedy(run: RunRecord) -> str:
        if probe == "disagreement" and run.config.settings.get("collaboration.peers", 1) == 1:
            return "it has one peer, which agrees with itself"
        return again(run, f" {flag}")

    facts: dict[str, float] = {}
    lines, marks = [], [0.0]
    for row, run in runs.chosen(asked, f"no run was made with {flag}", remedy):
        found = [(line, getattr(line, probe)) for line in run.probes]
        known = [(line, value) for line, value in found if value is not None]
        values = [value for _, value in known]
        last = {line.task: value for line, value in known}  # of each task the last line
        marks = max(marks, sorted({float(line.start) for line, _ in known}), key=len)
        lines.append(Curve(name=row, x=[float(line.batch) for line, _ in known], y=values))
        facts |= {
            f"{row}: mean over the stream": sum(values) / len(values),
            f"{row}: mean at the ends of tasks": sum(last.values()) / len(last),
        }
    panel = Lines(title=title, x="stream batches", y=y, lines=lines, marks=[*marks], log=log)
    return Found(facts, [panel])
