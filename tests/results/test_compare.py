import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fabricate import cost_of, fabricate, record

from peerlearn.errors import UserError
from peerlearn.records.read import read_runs
from peerlearn.records.schema import Cost
from peerlearn.results.compare import compare
from peerlearn.results.series import Group, Series

LR = {"optim.lr": 0.01}


def group_of(runs: list) -> Group:  # type: ignore[type-arg]
    (group,) = compare(runs)
    return group


def by_label(runs: list) -> dict[str, Series]:  # type: ignore[type-arg]
    return {one.label: one for group in compare(runs) for one in group.series}


def test_a_series_has_mean_deviation_and_interval_of_each_metric() -> None:
    (one,) = group_of([record(aa=0.4, LA=0.7), record(aa=0.6, seed=2, LA=0.7)]).series
    aa = one.spread("AA")
    assert aa is not None
    assert (one.label, one.seeds) == ("er", (0, 2))
    assert aa[:3] == (2, pytest.approx(0.5), pytest.approx(0.02**0.5))
    assert one.spread("LA") == (2, 0.7, 0.0, 0.7, 0.7)
    assert one.note == ""


def test_two_variants_of_a_method_are_two_rows_and_never_averaged() -> None:
    runs = [record(seed=k, aa=0.4) for k in (0, 1)]
    runs += [record(seed=k, aa=0.8, settings=LR) for k in (0, 1)]
    found = by_label(runs)
    assert list(found) == ["er", "er, lr=0.01"]
    means = [spread.mean for one in found.values() if (spread := one.spread("AA"))]
    assert means == pytest.approx([0.4, 0.8])


def test_variants_on_disk_are_two_rows(tmp_path: Path) -> None:
    fabricate(tmp_path, "er+ccldc", seed=0)
    fabricate(tmp_path, "er+ccldc", seed=1, settings=LR)
    assert [*by_label(read_runs(tmp_path))] == ["er+ccldc", "er+ccldc, lr=0.01"]


def test_series_that_would_have_the_same_label_are_told_apart_by_what_differs() -> None:
    runs = [record(), record(seed=1)]
    runs[1].config.settings["net.width"] = 32
    assert [*by_label(runs)] == ["er, width=16", "er, width=32"]


def test_runs_on_different_data_are_never_averaged_or_paired() -> None:
    runs = [record(fingerprint="aaaa"), record(seed=1, fingerprint="bbbb")]
    runs += [record("er+ccldc", 0.9, seed=k, fingerprint="cccc") for k in (0, 1)]
    found = by_label(runs)
    assert [*found] == ["er, fingerprint=aaaa", "er, fingerprint=bbbb", "er+ccldc"]
    assert found["er+ccldc"].gain is None
    assert found["er+ccldc"].note == "no baseline on the same state of the data"


def test_runs_of_different_plugins_are_not_averaged() -> None:
    runs = [record(plugins={"mine": "a.py 1"}), record(seed=1, plugins={"mine": "a.py 2"})]
    assert [*by_label(runs)] == ["er, mine=a.py 1", "er, mine=a.py 2"]


def test_the_machine_and_numbers_that_are_equal_make_no_variant() -> None:
    runs = [record(seed=k, settings={}) for k in (0, 1)]
    runs[1].config.settings.update(
        {"machine.device": "cuda", "machine.threads": 8, "net.width": 16.0, "blur": None}
    )
    assert [len(one.done) for one in by_label(runs).values()] == [2]


def test_the_gain_is_over_the_baseline_on_the_same_seeds() -> None:
    runs = [record(aa=aa, seed=k) for k, aa in enumerate((0.40, 0.41, 0.42))]
    runs += [record("er+sdc", aa, seed=k) for k, aa in enumerate((0.50, 0.53, 0.53))]
    found = by_label(runs)
    gain = found["er+sdc"].gain
    assert found["er"].gain is None
    assert gain is not None
    assert (gain.baseline.label, gain.seeds) == ("er", (0, 1, 2))
    assert list(gain.metrics) == ["AA", "LA", "FM", "RF"]
    aa = gain.metrics["AA"]
    assert (aa.n, aa.difference, aa.sign) == (3, pytest.approx(0.11), 1)
    t = 0.11 / (0.01 / 3**0.5)
    assert aa.p == pytest.approx(1 - t / (2 + t * t) ** 0.5)  # two degrees of freedom


def test_each_variant_of_a_wrapper_is_paired_with_the_baseline_of_the_same_settings() -> None:
    runs = [record(aa=0.3), record(aa=0.4, settings=LR), record("er+ccldc", 0.5, settings=LR)]
    gain = by_label(runs)["er+ccldc, lr=0.01"].gain
    assert gain is not None
    assert gain.baseline.label == "er, lr=0.01"


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({"optim.lr": 0.05}, "no baseline with lr=0.05"),
        ({"net.width": 32}, "no baseline with width=32"),
        ({"profile": "authors", "stream.tasks": 10}, "no baseline with tasks=10"),
    ],
)
def test_a_wrapper_without_an_agreeing_baseline_has_no_gain_and_says_why(
    given: dict[str, object], note: str
) -> None:
    runs = [record(), record(settings=LR), record("er+ccldc", settings=given)]
    (wrapper,) = (one for one in by_label(runs).values() if one.wrapper)
    assert (wrapper.gain, wrapper.note) == (None, note)


def test_a_setting_left_open_is_not_the_same_as_one_given() -> None:
    runs = [record(settings={"stream.image_size": None})]
    runs += [record("er+ccldc", settings={"stream.image_size": 64})]
    (wrapper,) = (one for one in by_label(runs).values() if one.wrapper)
    assert wrapper.note == "no baseline with image_size=64"


def test_the_collaboration_is_the_wrappers_own() -> None:
    runs = [record(), record("er+ccldc", settings={"collaboration.temperature": 2.0})]
    assert by_label(runs)["er+ccldc, temperature=2"].gain is not None


@pytest.mark.parametrize(
    ("method", "direction"),
    [("er+ccldc", "hard-to-easy"), ("er+ccldc-easy-to-hard", "easy-to-hard")],
)
def test_a_run_recorded_without_a_direction_had_the_default_one(
    method: str, direction: str
) -> None:
    old = record(method)
    new = record(method, seed=1, settings={"collaboration.direction": direction})
    new = replace(new, config=new.config.model_copy(update={"variant": {}}))
    (one,) = group_of([old, new]).series
    assert one.seeds == (0, 1)


def test_a_plugin_of_the_wrapper_does_not_part_it_from_its_baseline() -> None:
    runs = [record(), record("er+mine", plugins={"wrapper mine": "mine.py 1"})]
    assert by_label(runs)["er+mine"].gain is not None


def test_seeds_that_only_one_side_has_finished_are_not_paired() -> None:
    runs = [record(aa=0.4), record(aa=0.1, seed=1), record(aa=0.1, seed=2, status="running")]
    runs += [record("er+ccldc", 0.5, seed=k) for k in (0, 2, 3)]
    gain = by_label(runs)["er+ccldc"].gain
    assert gain is not None
    aa = gain.metrics["AA"]
    assert (aa.n, round(aa.difference, 9), aa.p) == (1, 0.1, None)
    none = by_label([record(), record("er+ccldc", seed=1)])["er+ccldc"]
    assert (none.gain, none.note) == (None, "no seed in common with its baseline")


def test_a_seed_without_a_number_is_not_paired() -> None:
    runs = [record(aa=float("nan")), record(aa=None, seed=1), record(aa=0.25, seed=2)]
    runs += [record("er+ccldc", 0.5, seed=k) for k in range(3)]
    gain = by_label(runs)["er+ccldc"].gain
    assert gain is not None
    assert gain.metrics["AA"][:2] == (1, 0.25)


def test_a_baseline_with_other_data_or_memory_is_no_baseline() -> None:
    runs = [record("er+ccldc"), record(memory=500), record(data="tiny"), record("gsa")]
    assert [one.gain for group in compare(runs) for one in group.series] == [None] * 4


def test_unfinished_runs_are_in_no_mean_but_in_a_note() -> None:
    runs = [record(aa=0.4), record(aa=0.9, seed=1, status="running"),
            record(seed=2, status="failed"), record(seed=3, status="running")]  # fmt: skip
    (one,) = group_of(runs).series
    assert (one.seeds, one.note) == ((0,), "1 failed, 2 unfinished")
    assert one.spread("AA") == (1, 0.4, None, None, None)


def test_a_series_without_a_finished_run_keeps_its_place() -> None:
    (one,) = group_of([record(aa=None, status="running")]).series
    assert (one.done, one.spread("AA"), one.gain) == ([], None, None)
    assert set(one.costs.values()) == {None}


def test_costs_are_means_over_the_seeds_that_measured_them() -> None:
    costs = [Cost(train_seconds=10.0, peak_bytes=5.0), Cost(train_seconds=20.0)]
    (one,) = group_of([record(seed=k, cost=cost) for k, cost in enumerate(costs)]).series
    assert (one.cost("train_seconds"), one.cost("peak_bytes"), one.cost("kept_bytes")) == (
        15.0,
        5.0,
        None,
    )
    assert one.cost("train_seconds", seeds=[1]) == 20.0


def test_a_seed_found_twice_with_the_same_numbers_counts_once() -> None:
    (one,) = group_of([record(root="a"), record(root="b")]).series
    assert one.seeds == (0,)


def test_a_seed_found_twice_with_different_numbers_is_refused_by_both_names() -> None:
    twins = [record(aa=0.4, root="a"), record(aa=0.5, root="b")]
    with pytest.raises(UserError) as raised:
        compare(twins)
    message = str(raised.value)
    assert f"{twins[0].folder} and {twins[1].folder} have the same settings" in message
    assert "give only one of the two" in message
    for word in ("remove", "delete", "\n"):
        assert word not in message


def test_series_stand_in_the_order_of_the_paper_with_baselines_first() -> None:
    names = [("mini", 1000, "er"), ("mini", 200, "onpro"), ("mini", 200, "er+sdc"),
             ("mini", 200, "er+ccldc"), ("mini", 200, "er"), ("mini", 200, "zeta"),
             ("cifar10", 500, "gsa")]  # fmt: skip
    groups = compare([record(method, data=data, memory=m) for data, m, method in names])
    assert [(g.data, g.memory, [one.method for one in g.series]) for g in groups] == [
        ("cifar10", 500, ["gsa"]),
        ("mini", 200, ["er", "er+ccldc", "er+sdc", "onpro", "zeta"]),
        ("mini", 1000, ["er"]),
    ]


def test_what_all_series_of_a_group_share_is_said_once() -> None:
    group = group_of([record(settings=LR), record("er+ccldc", settings=LR | {"net.width": 32})])
    assert group.name == "mini, memory 200, lr=0.01"
    assert [one.name for one in group.series] == ["er", "er+ccldc, width=32"]
    assert [one.label for one in group.series] == ["er, lr=0.01", "er+ccldc, lr=0.01, width=32"]


def seeds(method: str, *values: float) -> list:  # type: ignore[type-arg]
    return [record(method, aa, seed=k) for k, aa in enumerate(values)]


def test_best_is_the_best_mean_with_all_that_cannot_be_told_from_it() -> None:
    runs = seeds("er", 0.30, 0.31, 0.32) + seeds("gsa", 0.50, 0.55, 0.51)
    runs += seeds("ocm", 0.52, 0.51, 0.54)
    assert group_of(runs).best["AA"] == {"gsa", "ocm"}
    assert group_of(seeds("er", 0.3, 0.31) + seeds("gsa", 0.5, 0.511)).best["AA"] == {"gsa"}


def test_of_forgetting_the_least_is_best() -> None:
    runs = [record(seed=k, RF=0.2 + k / 100) for k in range(3)]
    runs += [record("gsa", seed=k, RF=0.5 + k / 99) for k in range(3)]
    assert group_of(runs).best["RF"] == {"er"}


def test_one_seed_is_never_best_and_hides_no_other() -> None:
    assert group_of([record(aa=0.4), record("gsa", 0.5)]).best == {}
    runs = seeds("er", 0.30, 0.31, 0.32) + seeds("ocm", 0.50, 0.511, 0.52) + seeds("gsa", 0.9)
    assert group_of(runs).best["AA"] == {"ocm"}
    assert group_of(seeds("er", 0.3, 0.4)).best == {}


def test_chance_is_one_over_the_classes_so_far(tmp_path: Path) -> None:
    fabricate(tmp_path, "er")
    group = group_of(read_runs(tmp_path))
    assert group.chances == [pytest.approx((1 / 2, 1 / 4, 1 / 6, 1 / 8, 1 / 10))]


def test_runs_that_guess_are_at_chance_and_others_are_not(tmp_path: Path) -> None:
    for seed in range(3):
        fabricate(tmp_path, "er", seed=seed)
        fabricate(tmp_path, "gsa", seed=seed, chance=True)
    assert [one.at_chance for one in group_of(read_runs(tmp_path)).series] == [False, True]


def test_the_order_of_the_runs_does_not_matter() -> None:
    runs = seeds("er", 0.3, 0.31) + seeds("er+ccldc", 0.5, 0.6) + seeds("gsa", 0.1)
    shuffled = random.Random(0).sample(runs, len(runs))
    assert compare(shuffled) == compare(runs)


def test_costs_can_be_given_by_the_order_of_their_fields() -> None:
    assert cost_of(1.0, 2.0) == Cost(forward_per_image=1.0, backward_per_image=2.0)


def test_a_wrapper_on_part_of_the_data_is_not_paired_with_a_baseline_on_all_of_it() -> None:
    runs = [record(), record("er+ccldc", settings={"stream.train_per_class": 10})]
    (wrapper,) = (one for one in by_label(runs).values() if one.wrapper)
    assert (wrapper.gain, wrapper.note) == (None, "no baseline with train_per_class=10")


def test_a_run_from_before_a_setting_came_is_one_with_its_usual_value() -> None:
    new, old = record(), record(seed=1)
    settings = {k: v for k, v in old.config.settings.items() if k != "optim.weight_decay"}
    config = old.config.model_copy(update={"settings": settings})
    runs = [new, replace(old, config=config)]
    assert [one.seeds for one in by_label(runs).values()] == [(0, 1)]


def test_the_profile_is_no_difference_of_its_own() -> None:
    runs = [record(), record("er+ccldc", settings={"profile": "authors"})]
    (wrapper,) = (one for one in by_label(runs).values() if one.wrapper)
    assert wrapper.gain is not None


def test_each_of_many_variants_is_paired_with_its_own_baseline_soon() -> None:
    rates = [1e-6 * k for k in range(1, 401)]
    runs = [
        record(m, 0.1 + rate, settings={"optim.lr": rate})
        for rate in rates
        for m in ("er", "er+sdc")
    ]
    start = time.process_time()
    group = group_of(runs)
    assert time.process_time() - start < 2
    assert len(group.gains) == 400
    pairs = [(one.facts, gain.baseline.facts) for one, gain in group.gains]
    assert all(mine["optim.lr"] == theirs["optim.lr"] for mine, theirs in pairs)


def test_a_baseline_from_before_a_setting_came_is_still_the_baseline_of_new_runs() -> None:
    old, new = record("er", 0.4), record("er+ccldc", 0.5)
    settings = {**new.config.settings, "stream.images": "all"}
    origins = {**new.config.origins, "stream.images": "default"}
    config = new.config.model_copy(update={"settings": settings, "origins": origins})
    (group,) = compare([old, replace(new, config=config)])
    (wrapped,) = (one for one in group.series if one.wrapper)
    assert wrapped.gain is not None
    assert wrapped.gain.metrics["AA"].difference == pytest.approx(0.1)
