"""The training time of each method."""

import statistics
from typing import Any

from peerlearn.analysis.runs import Found, Runs
from peerlearn.errors import UserError
from peerlearn.records.analysis import Bar, Bars
from peerlearn.records.read import RunRecord

TITLE = "Training time"
ABOUT = (
    "Seconds that the steps of a run took, evaluation and probes left out, mean over the seeds; "
    "the spread is their standard deviation. Times are of the machine of each run and of the "
    "threads that it had there, and can only be compared where these were the same and nothing "
    "else ran."
)


def find(runs: Runs) -> Found:
    """A bar for each row."""
    means: list[tuple[RunRecord, str, float]] = []  # one of its runs, its name, its mean
    facts: dict[str, Any] = {}
    bars = []
    for row in runs.rows:
        meant = [run for run in row.runs if runs.seed in (None, run.seed)]
        times = [time for run in meant if (time := run.cost.train_seconds) is not None]
        if not times:
            runs.left_out[row.name] = "no time was recorded"
            continue
        for run in meant:
            runs.saw(run)
        mean, spread = statistics.fmean(times), statistics.stdev(times) if times[1:] else None
        bars.append(Bar(name=row.name, value=mean, spread=spread))
        means.append((meant[0], row.name, mean))
        threads = {str(run.config.settings.get("machine.threads")) for run in meant}
        facts |= {f"{row.name}: seconds": mean, f"{row.name}: threads": ", ".join(sorted(threads))}
    if not bars:
        raise UserError("time: none of these runs says how long it trained; name others")
    for run, name, mean in means:
        base, plus, _ = run.method.partition("+")
        wanted = (run.data, run.memory, base)
        found = [m for m in means if (m[0].data, m[0].memory, m[0].method) == wanted]
        if plus and len(found) == 1:
            facts[f"{name}: times {found[0][1]}"] = mean / found[0][2]
    return Found(facts, [Bars(title=TITLE, y="seconds", bars=bars)])
