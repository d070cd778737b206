"""`peerlearn run --rehearse`: cost by hand, interrupts, and what is refused."""

import json
import os
import signal
from pathlib import Path

import pytest
from command import VARIANT, folder, run_small

from peerlearn.experiment import run as running

AT_ENDS = ("--rehearse", "3")
ALONG = ("--rehearse", "3", "--rehearse-every", "30")  # after images 30, 60 and 90 of 100


def variant(words: tuple[str, ...]) -> str:
    names = [word.removeprefix("--").replace("-", "_") for word in words[::2]]
    given = [f"{name}={value}" for name, value in zip(names, words[1::2], strict=True)]
    return ",".join([*given, VARIANT])


def summary_of(out: Path, method: str, words: tuple[str, ...]) -> dict:
    found: dict = json.loads((folder(out, method, variant(words)) / "summary.json").read_text())
    return found


@pytest.mark.parametrize(("words", "steps"), [(AT_ENDS, 5 * 3), (ALONG, 3 * 3)])
def test_computing_and_updates_are_those_counted_by_hand(
    words: tuple[str, ...], steps: int, tmp_path: Path
) -> None:
    """Ten batches of 10; memory 20, so replay is of 10 images in the second, then of 20."""
    assert run_small(tmp_path, *words, method="er") == 0
    cost = summary_of(tmp_path, "er", words)["cost"]
    learnt = (10 + 10) + 8 * (10 + 20)  # images; there is no step on the first batch
    rehearsed = steps * 20
    assert cost["forward_per_image"] == (learnt + rehearsed) / 100
    assert cost["backward_per_image"] == (learnt + rehearsed) / 100
    assert cost["relative"] == pytest.approx((learnt + rehearsed) / learnt)
    assert cost["updates_per_image"] == pytest.approx((9 + steps) / 100)


@pytest.mark.parametrize("words", [AT_ENDS, ALONG])
@pytest.mark.parametrize("method", ["er_ace+ccldc", "derpp+ema"])
def test_interrupted_within_a_rehearsal_ends_with_the_same_bytes(
    words: tuple[str, ...], method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_small(tmp_path / "unbroken", *words, method=method) == 0
    rehearse, calls = running.OnlineLearner.rehearse, []

    def interrupted(learner, *given):  # type: ignore[no-untyped-def]
        calls.append(1)
        if len(calls) in (2, 4, 5):
            os.kill(os.getpid(), signal.SIGTERM)
        return rehearse(learner, *given)

    monkeypatch.setattr(running.OnlineLearner, "rehearse", interrupted)
    codes = [run_small(tmp_path / "broken", *words, method=method) for _ in range(4)]
    assert codes == [130, 130, 130, 0]
    one, two = (folder(tmp_path / name, method, variant(words)) for name in ("unbroken", "broken"))
    assert (one / "accuracy.json").read_bytes() == (two / "accuracy.json").read_bytes()
    costs = [json.loads((at / "summary.json").read_text())["cost"] for at in (one, two)]
    assert costs[0]["flops"] == costs[1]["flops"]


def test_rehearsal_changes_the_result(tmp_path: Path) -> None:
    assert run_small(tmp_path, method="er") == 0
    assert run_small(tmp_path, *AT_ENDS, method="er") == 0
    one, two = folder(tmp_path, "er"), folder(tmp_path, "er", variant(AT_ENDS))
    assert (one / "accuracy.json").read_bytes() != (two / "accuracy.json").read_bytes()


def test_a_budget_ends_rehearsal_too(tmp_path: Path) -> None:
    assert run_small(tmp_path, *AT_ENDS, method="er") == 0
    all_of_it = summary_of(tmp_path, "er", AT_ENDS)["cost"]["flops"]
    budget = ("--budget", str(all_of_it / 2))
    assert run_small(tmp_path, *AT_ENDS, *budget, method="er") == 0
    (found,) = (tmp_path / "mini" / "er" / "m20").glob("*budget*/seed0/summary.json")
    taken = json.loads(found.read_text())["cost"]["flops"]
    assert 0.4 * all_of_it < taken <= 0.5 * all_of_it


@pytest.mark.parametrize(
    ("method", "words", "why"),
    [
        ("ocm", AT_ENDS, "ocm cannot take steps on the memory alone, as its contrast needs"),
        ("gsa", AT_ENDS, "gsa cannot take steps on the memory alone, as it balances"),
        ("onpro", AT_ENDS, "onpro cannot take steps on the memory alone, as its prototypes"),
        ("er", (*AT_ENDS, "--memory", "0"), "there is no memory; take --memory above 0"),
        ("er", (*AT_ENDS, "--blur", "0.1"), "say after how many stream images with --rehearse-e"),
        ("er", (*AT_ENDS, "--stream", "i-blurry"), "say after how many stream images with"),
        ("er", (*AT_ENDS, "--realtime", "true"), "with realtime the stream does not wait"),
        ("er", ("--rehearse-every", "30"), "rehearse_every needs rehearse"),
    ],
)
def test_what_cannot_work_is_one_line_and_leaves_nothing(
    method: str,
    words: tuple[str, ...],
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_small(tmp_path, *words, method=method) == 2
    said = capsys.readouterr().err.strip()
    assert why in said
    assert "\n" not in said
    assert not [*tmp_path.iterdir()]


def test_streams_without_boundaries_rehearse_every_so_many_images(tmp_path: Path) -> None:
    words = (*ALONG, "--stream", "i-blurry")
    assert run_small(tmp_path, *words, method="er") == 0
