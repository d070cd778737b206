"""How metrics along a stream were had: what must agree before they are averaged or compared."""

from peerlearn.records.read import RunRecord

BETWEEN = ("A_AUC", "AAA", "WC")  # metrics of points inside tasks
HOW = ("every", "probe", "window")  # of `Summary.along`
Way = tuple[float | None, ...]


def way_of(run: RunRecord, metric: str) -> Way:
    """What a metric of a run rests on: images between points, and test images per class.

    Nothing for what needs no such points: metrics of a matrix and of ends of tasks, where all test
    images are predicted, and prequential accuracy in all.
    """
    if metric not in BETWEEN:
        return ()
    return run.summary.along.get("every"), run.summary.along.get("probe")


def in_words(way: Way) -> str:
    """How often, and on what; nothing where that is not known.

    >>> in_words((100.0, 10.0))
    'every 100 images, 10 test images per class'
    """
    every, probe = way
    if every is None or probe is None:
        return ""
    return f"every {every:,.0f} images, {probe:,.0f} test images per class"
