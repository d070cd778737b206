import math
import subprocess
import sys

import pytest

from peerlearn.metrics import METRICS, AccuracyMatrix, summarise
from peerlearn.metrics.table import EVERY, MAIN

ROWS = [[0.8], [0.6, 0.7], [0.5, 0.5, 0.9]]


def test_a_summary_has_every_metric_of_the_table_in_its_order() -> None:
    assert list(summarise(AccuracyMatrix(ROWS))) == list(METRICS)
    assert list(AccuracyMatrix(ROWS).summary()) == ["AA", "LA", "FM", "RF", "BWT"]
    assert MAIN == ("AA", "LA", "FM", "RF")


def test_aia_is_the_mean_of_the_average_accuracy_after_each_task() -> None:
    assert summarise(AccuracyMatrix(ROWS))["AIA"] == pytest.approx((0.8 + 0.65 + 1.9 / 3) / 3)


def test_less_forgetting_is_better_and_more_of_all_else() -> None:
    lower = {name for name, metric in METRICS.items() if not metric.higher_is_better}
    assert lower == {"FM", "RF"}
    assert METRICS["RF"].direction == "lower is better"


def test_a_matrix_without_rows_has_no_summary_and_one_task_nothing_to_forget() -> None:
    assert summarise(AccuracyMatrix()) == {}
    assert math.isnan(summarise(AccuracyMatrix([[0.5]]))["FM"])


def test_every_metric_is_explained() -> None:
    for metric in EVERY.values():
        assert metric.title
        assert metric.formula
        assert metric.meaning.endswith(".")


def test_only_accuracy_needs_torch() -> None:
    code = (
        "import sys; from peerlearn.metrics import AccuracyMatrix, METRICS; "
        "assert 'torch' not in sys.modules; from peerlearn.metrics import accuracy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
