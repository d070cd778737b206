"""What a metric is: a formula with its name, and which direction is better."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")  # what is summed up


@dataclass(frozen=True)
class Metric(Generic[S]):
    """A number that sums up what was measured: an accuracy matrix, or points along a stream.

    Args:
        name: in tables, such as AA.
        title: in words.
        formula: of a matrix with `a[i][j]` the accuracy on task j after task i, and k the last
            task; of points in words.
        meaning: a sentence for the reader of a table.
        higher_is_better: which direction is good.
        of: computes it.
        main: whether it is shown in every table that has it.
        every_row: whether it looks at all rows of a matrix, where the others ask the last one.

    >>> Metric("n", "length", "rows", "How many.", True, len).of([[0.75], [0.5, 0.25]])
    2
    """

    name: str
    title: str
    formula: str
    meaning: str
    higher_is_better: bool
    of: Callable[[S], float]
    main: bool = False
    every_row: bool = False

    @property
    def direction(self) -> str:
        """Which values are good, in words."""
        return "higher is better" if self.higher_is_better else "lower is better"
