"""Every row set against one of them."""

import pytest
from fabricate import record

from peerlearn.errors import UserError
from peerlearn.results.compare import against, compare
from peerlearn.results.formats import render


def test_every_row_is_paired_with_the_one_that_was_named() -> None:
    runs = [record("er", 0.3, seed=seed) for seed in (0, 1, 2)]
    runs += [record("er+ccldc", 0.4 + seed / 100, seed=seed) for seed in (0, 1)]
    runs += [record("gsa", 0.5, seed=seed) for seed in (1, 2)]
    (group,) = against(compare(runs), "er+ccldc")
    gains = {s.label: (g.baseline.label, g.seeds, g.metrics["AA"].difference)
             for s, g in group.gains}  # fmt: skip
    assert gains == {
        "er": ("er+ccldc", (0, 1), pytest.approx(-0.105)),
        "gsa": ("er+ccldc", (1,), pytest.approx(0.09)),
    }
    assert "gain: points of AA over er+ccldc, on the n seeds" in render([group], "text")


def test_a_group_without_that_row_has_no_gains() -> None:
    runs = [record(name, data=data) for name, data in (("er", "mini"), ("gsa", "mini"))]
    runs += [record(name, data="cifar10") for name in ("er", "er+ccldc")]
    groups = against(compare(runs), "gsa")
    assert {group.data: len(group.gains) for group in groups} == {"mini": 1, "cifar10": 0}


def test_a_row_that_is_not_there_is_told() -> None:
    with pytest.raises(UserError, match=r"no row is called 'er\+ccdc'; did you mean er\+ccldc"):
        against(compare([record("er"), record("er+ccldc")]), "er+ccdc")
