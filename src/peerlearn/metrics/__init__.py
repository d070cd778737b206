"""What a run is measured by; only `accuracy` needs torch."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.metrics.evaluation import accuracy as accuracy
    from peerlearn.metrics.matrix import AccuracyMatrix as AccuracyMatrix
    from peerlearn.metrics.table import METRICS as METRICS
    from peerlearn.metrics.table import Metric as Metric
    from peerlearn.metrics.table import summarise as summarise

_HOMES = {
    "METRICS": "table",
    "AccuracyMatrix": "matrix",
    "Metric": "table",
    "accuracy": "evaluation",
    "summarise": "table",
}
__all__ = list(_HOMES)

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(__name__, _HOMES)
