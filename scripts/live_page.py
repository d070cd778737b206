"""What docs/results/live.md shows of the records beside it.

python scripts/live_page.py          # writes the tables anew, between the marks in the page
python scripts/live_page.py OUT      # first gathers what measure_live and measure_answers left
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from page_parts import mean, write_between

from peerlearn.results.formats import number, points
from peerlearn.results.layout import NOTHING, Cell, Head, Layout, as_markdown
from peerlearn.results.statistics import paired, spread

HOME = Path(__file__).parents[1] / "docs" / "results"
SIGNALS = {
    "disagreement": "disagreement",
    "entropy": "entropy",
    "probability": "probability of the ensemble",
    "probability_of_one": "probability of one network",
}
Found = Mapping[str, Any]


def gathered(out: Path) -> dict[str, list[Any]]:
    """All that was measured, by kind."""
    kinds = {"streams": "found.json", "killed": "killed.json", "answers": "answers.json"}
    return {
        kind: [
            json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob(f"*/{name}"))
        ]
        for kind, name in kinds.items()
    }


def tables(records: Mapping[str, Sequence[Found]]) -> dict[str, str]:
    """The tables of the page, by the names of their marks."""
    streams = _by_method(records["streams"])
    answers = {one["method"]: one for one in records["answers"]}
    return {
        "streams": _table(
            "method", "n", "prequential", "over er", "at the end", "over er", "seconds",
            "MB after 1,500 images", "MB at the end",
            rows=[_stream(name, own, streams["er"]) for name, own in streams.items()],
        ),
        "signals": _table(
            "method", "n", *SIGNALS.values(),
            rows=[_signals(name, own) for name, own in streams.items()],
        ),
        "latency": _table(
            "method", "half within", "90 %", "99 %", "all", "a step", "while nobody asks",
            rows=[_latency(name, one["while_learning"]) for name, one in answers.items()],
        ),
        "exports": _table(
            "method", "networks", "answered by", "MB", "off by", "images/s, one at a time",
            "64 at a time",
            rows=[row for name, one in answers.items() for row in _exports(name, one["exported"])],
        ),
    }  # fmt: skip


def _table(*heads: str, rows: Iterable[Sequence[str]]) -> str:
    kinds = [Head(head, words=head in ("method", "answered by")) for head in heads]
    return as_markdown(Layout(tuple(kinds), [[[Cell(text) for text in row] for row in rows]]))


def _by_method(found: Sequence[Found]) -> dict[str, dict[int, Found]]:
    names = sorted({one["method"] for one in found}, key=len)
    return {name: {one["seed"]: one for one in found if one["method"] == name} for name in names}


def _stream(name: str, own: Mapping[int, Found], er: Mapping[int, Found]) -> list[str]:
    row = [name, str(len(own))]
    for metric in ("prequential", "accuracy"):
        both = sorted(own.keys() & er.keys())
        gain = paired([own[seed][metric] for seed in both], [er[seed][metric] for seed in both])
        row += [mean([one[metric] for one in own.values()])]
        row += [NOTHING if name == "er" else points(gain, detail=True)]
    held = [(one["megabytes"][2], one["megabytes"][-1]) for one in own.values()]
    seconds = spread([one["seconds"] for one in own.values()]).mean
    return [
        *row,
        f"{seconds:.0f}",
        *(f"{spread(part).mean:.0f}" for part in zip(*held, strict=True)),
    ]


def _signals(name: str, own: Mapping[int, Found]) -> list[str]:
    row = [name, str(len(own))]
    for signal in SIGNALS:
        found = spread([one[f"auroc_{signal}"] for one in own.values()])
        alone = name == "er" and signal == "disagreement"
        row.append(NOTHING if alone else f"{found.mean:.3f} ± {found.std or 0:.3f}")
    return row


def _latency(name: str, own: Found) -> list[str]:
    times = [f"{own['milliseconds'][share]:.0f} ms" for share in ("50", "90", "99", "most")]
    steps = [own["step_milliseconds"], own["step_milliseconds_alone"]]
    return [name, *times, *(f"{step:.0f} ms" for step in steps)]


def _exports(name: str, own: Found) -> list[list[str]]:
    files = {"pytorch": "weights.safetensors", "program": "program.pt2", "onnx": "model.onnx"}
    said = {"pytorch": "the learner", "program": "the program", "onnx": "ONNX Runtime"}
    return [
        [
            name,
            str(own["networks"]),
            said[engine],
            number(own["bytes"][files[engine]] / 1e6, ".2f"),
            NOTHING
            if engine == "pytorch"
            else f"{own['largest_difference'][f'pytorch {engine}']:.0e}",
            *(f"{own['images_per_second'][size][engine]:.0f}" for size in ("1", "64")),
        ]
        for engine in files
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        records = gathered(Path(sys.argv[1]))
        (HOME / "live.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    known = json.loads((HOME / "live.json").read_text(encoding="utf-8"))
    for name, table in tables(known).items():
        marks = f"<!-- {name}: scripts/live_page.py -->", f"<!-- end of {name} -->"
        write_between(HOME / "live.md", *marks, table)
