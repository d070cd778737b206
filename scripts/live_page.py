"""The tables of docs/results/live.md: a stream of one's own.

python scripts/live_page.py          # writes them anew, between the marks in the page
python scripts/live_page.py OUT      # first gathers what measure_live and measure_answers left
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from page_parts import cells, mean, write_between

from peerlearn.results.formats import number
from peerlearn.results.layout import NOTHING, Head, Layout, as_markdown
from peerlearn.results.statistics import Paired, paired, spread

HOME = Path(__file__).parents[1] / "docs" / "results"
KINDS = {"streams": "found.json", "killed": "killed.json", "answers": "answers.json"}
RIVALS = ("er", "er+ccldc")
SIGNALS = {
    "disagreement": "disagreement",
    "entropy": "entropy",
    "probability": "probability of the answer",
    "probability_of_one": "probability of one network",
    "divergence": "Jensen-Shannon divergence",
}
BETWEEN = ("disagreement", "divergence")  # of a single network there is nobody to disagree with
WORDS = ("learner", "answered by")  # heads of columns that are no numbers

Found = Mapping[str, Any]
BySeed = Mapping[int, Found]
Shown = str | Paired | None  # what a cell shows


def gathered(out: Path) -> dict[str, list[Any]]:
    """All that was measured, by kind."""
    return {
        kind: [
            json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob(f"*/{name}"))
        ]
        for kind, name in KINDS.items()
    }


def tables(records: Mapping[str, Sequence[Found]]) -> dict[str, str]:
    """The tables of the page, by the names of their marks."""
    streams = _by_learner(records["streams"])
    answers = {one["learner"]: one for one in _in_order(records["answers"])}
    over = [f"over {rival}" for rival in RIVALS]
    return {
        "streams": _table(
            *("learner", "n", "CPU seconds"),
            *("prequential", *over, "at the end", *over),
            rows=[_stream(name, own, streams) for name, own in streams.items()],
        ),
        "held": _table(
            *("learner", "n", "least MB, first half", "second half", "most", "killed"),
            rows=[_held(name, own, records["killed"]) for name, own in streams.items()],
        ),
        "signals": _table(
            *("learner", "n", *SIGNALS.values()),
            *("disagreement over one network", "over the answer"),
            rows=[_signals(name, own) for name, own in streams.items()],
        ),
        "calibration": _table(
            *("learner", "n", "temperature", "stream without it", "with it"),
            *("test images without it", "with it", "difference", "with the memory's", "difference"),
            rows=[_calibration(name, own) for name, own in streams.items()],
        ),
        "latency": _table(
            *("learner", "half within", "90 %", "99 %", "all", "alone, half within", "99 %"),
            *("a step", "while nobody asks", "of no state", "same bytes"),
            rows=[_latency(name, one["while_learning"]) for name, one in answers.items()],
        ),
        "exports": _table(
            *("learner", "networks", "answered by", "MB", "off by"),
            *("images/s, one at a time", "64 at a time"),
            rows=[row for name, one in answers.items() for row in _exports(name, one["exported"])],
        ),
    }


def _table(*heads: str, rows: Iterable[Sequence[Shown]]) -> str:
    kinds = [Head(head, words=head in WORDS) for head in heads]
    return as_markdown(Layout(kinds, [cells([*rows])]))


def _in_order(found: Iterable[Found]) -> list[Found]:
    return sorted(found, key=lambda one: (one["learner"].split(",")[0], one["learner"]))


def _by_learner(found: Sequence[Found]) -> dict[str, dict[int, Found]]:
    by_name: dict[str, dict[int, Found]] = {}
    for one in _in_order(found):
        by_name.setdefault(one["learner"], {})[one["seed"]] = one
    return by_name


def _shown(name: str) -> str:
    return name.replace(",", ", ")


def _gain(own: BySeed, other: BySeed, metric: str, rival_metric: str | None = None) -> Shown:
    """The difference, paired by seed."""
    seeds = sorted(own.keys() & other.keys())
    if not seeds or (own is other and rival_metric is None):
        return NOTHING
    theirs = [other[seed][rival_metric or metric] for seed in seeds]
    return paired([own[seed][metric] for seed in seeds], theirs)


def _stream(name: str, own: BySeed, streams: Mapping[str, BySeed]) -> list[Shown]:
    seconds = spread([one["cpu_seconds"] for one in own.values()]).mean
    row: list[Shown] = [_shown(name), str(len(own)), f"{seconds:.0f}"]
    for metric in ("prequential", "accuracy"):
        row.append(mean([one[metric] for one in own.values()]))
        row += [_gain(own, streams[rival], metric) for rival in RIVALS]
    return row


def _held(name: str, own: BySeed, killed: Iterable[Found]) -> list[str]:
    """The memory of the process, the mean over seeds, and how broken streams came out."""
    held = [one["megabytes"] for one in own.values()]
    half = len(held[0]) // 2
    halves = [[min(each[:half]) for each in held], [min(each[half:]) for each in held]]
    sizes = [f"{spread(part).mean:.0f}" for part in (*halves, [*map(max, held)])]
    tried = [one for one in killed if one["learner"] == name]
    same = all(one["same"] for one in tried)
    times = sum(one["kills"] for one in tried)
    verdict = f"{times} times, {'the same' if same else 'NOT the same'}" if tried else NOTHING
    return [_shown(name), str(len(own)), *sizes, verdict]


def _signals(name: str, own: BySeed) -> list[Shown]:
    row: list[Shown] = [_shown(name), str(len(own))]
    disagree = "+" in name
    for signal in SIGNALS:
        found = mean([one[f"auroc_{signal}"] for one in own.values()])
        row.append(found if disagree or signal not in BETWEEN else NOTHING)
    for rival in ("probability_of_one", "probability"):
        gain = _gain(own, own, "auroc_disagreement", f"auroc_{rival}")
        row.append(gain if disagree else NOTHING)
    return row


def _calibration(name: str, own: BySeed) -> list[Shown]:
    temperature = spread([one["temperature_with"] for one in own.values()])
    head = [_shown(name), str(len(own))]
    row: list[Shown] = [*head, f"{temperature.mean:.2f} ± {temperature.std or 0:.2f}"]
    for key in ("stream_without", "stream_with", "test_without", "test_with", "test_memory"):
        row.append(mean([one[f"ece_{key}"] for one in own.values()]))
        if key in ("test_with", "test_memory"):
            row.append(_gain(own, own, f"ece_{key}", "ece_test_without"))
    return row


def _latency(name: str, own: Found) -> list[str]:
    asked, alone = own["milliseconds"], own["milliseconds_while_nothing_learns"]
    times = [*(asked[share] for share in ("50", "90", "99", "most")), alone["50"], alone["99"]]
    times += [own["step_milliseconds"], own["step_milliseconds_alone"]]
    told = [f"{own['of_no_state']} of {own['asked']}", "yes" if own["same_bytes"] else "NO"]
    return [_shown(name), *(f"{one:.0f} ms" for one in times), *told]


def _exports(name: str, own: Found) -> list[list[str]]:
    files = {"pytorch": "weights.safetensors", "program": "program.pt2", "onnx": "model.onnx"}
    said = {"pytorch": "the learner", "program": "the program", "onnx": "ONNX Runtime"}
    off = {engine: own["largest_difference"].get(f"pytorch {engine}") for engine in files}
    return [
        [
            _shown(name),
            str(own["networks"]),
            said[engine],
            number(own["bytes"][file] / 1e6, ".2f"),
            NOTHING if off[engine] is None else f"{off[engine]:.0e}",
            *(f"{own['images_per_second'][size][engine]:.0f}" for size in ("1", "64")),
        ]
        for engine, file in files.items()
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        records = gathered(Path(sys.argv[1]))
        (HOME / "live.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    known = json.loads((HOME / "live.json").read_text(encoding="utf-8"))
    for name, table in tables(known).items():
        marks = f"<!-- {name}: scripts/live_page.py -->", f"<!-- end of {name} -->"
        write_between(HOME / "live.md", *marks, table)
