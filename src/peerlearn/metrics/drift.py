"""A hint that the stream is no longer what it was."""

# by which errors may rise for ever without a hint. With 0.005 every second steady stream of 5,000
# images, 30 % of them wrong, had a hint; with this none of 200 has, and one that is due comes 30
# images later.
MARGIN = 0.05
THRESHOLD = 30.0  # errors more than there should have been


class DriftHint:
    """Page and Hinkley's test on the errors of predictions made before an image was learnt.

    Page, Continuous inspection schemes, Biometrika 1954, https://doi.org/10.2307/2333009

    It adds up by how much errors exceed their mean so far, less a margin, and gives a hint when
    that sum has risen by a threshold since it was lowest. Then it begins anew. New classes are
    errors at first, so that their arrival may well be what it hints at.

    >>> hint = DriftHint()
    >>> hint.add([True] * 200)
    >>> hint.add([False] * 100)
    >>> hint.at  # images after which it came
    [235]
    """

    def __init__(self) -> None:
        self.seen = 0
        self.at: list[int] = []
        self._begin()

    def _begin(self) -> None:
        self.count, self.mean, self.sum, self.lowest = 0, 0.0, 0.0, 0.0

    def add(self, right: list[bool]) -> None:
        """Count the answers to some images, in order."""
        for one in right:
            self.seen += 1
            self.count += 1
            error = 0.0 if one else 1.0
            self.mean += (error - self.mean) / self.count
            self.sum += error - self.mean - MARGIN
            self.lowest = min(self.lowest, self.sum)
            if self.sum - self.lowest > THRESHOLD:
                self.at.append(self.seen)
                self._begin()
