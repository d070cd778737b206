"""What a run is measured by; only `accuracy` needs torch."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.metrics.along import ALONG as ALONG
    from peerlearn.metrics.along import Point as Point
    from peerlearn.metrics.along import Prequential as Prequential
    from peerlearn.metrics.along import summarise_points as summarise_points
    from peerlearn.metrics.evaluation import accuracy as accuracy
    from peerlearn.metrics.matrix import AccuracyMatrix as AccuracyMatrix
    from peerlearn.metrics.metric import Metric as Metric
    from peerlearn.metrics.table import METRICS as METRICS
    from peerlearn.metrics.table import summarise as summarise

_HOMES = {
    "ALONG": "along",
    "METRICS": "table",
    "AccuracyMatrix": "matrix",
    "Metric": "metric",
    "Point": "along",
    "Prequential": "along",
    "accuracy": "evaluation",
    "summarise": "table",
    "summarise_points": "along",
}
__all__ = list(_HOMES)

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(__name__, _HOMES)
