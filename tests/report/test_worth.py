"""What accuracy costs, as a chart."""

from fabricate import cost_of, record

from peerlearn.report import figures
from peerlearn.report.looks import assign_looks
from peerlearn.results.compare import compare
from peerlearn.results.series import Group


def group_of(*methods: tuple[str, float, float, float]) -> Group:
    runs = [
        record(name, aa + seed / 100, seed=seed, cost=cost_of(forward, backward))
        for name, aa, forward, backward in methods
        for seed in (0, 1)
    ]
    (group,) = compare(runs)
    return group


def test_each_series_has_a_point_at_forward_and_twice_backward() -> None:
    group = group_of(("er", 0.3, 7.4, 7.4), ("er+mkd", 0.4, 22.2, 14.8))
    html = str(figures.worth(group, assign_looks([group])))
    assert "Accuracy against cost" in html
    assert "<td>22.2</td><td>30.5</td>" in html  # 7.4 + 2 x 7.4, mean of 30 and 31
    assert "<td>51.8</td><td>40.5</td>" in html
    assert 'class="move' in html  # from the baseline to its wrapper


def test_one_series_has_nothing_to_be_compared_with() -> None:
    group = group_of(("er", 0.3, 7.4, 7.4))
    assert figures.worth(group, assign_looks([group])) is None
