"""Edges: which teacher a student follows, and which view each of the two sees."""

from typing import Literal, NamedTuple

METHOD_BATCH = -1  # stands in an edge for the batch that the method itself trains on

Direction = Literal["hard-to-easy", "easy-to-hard", "same-difficulty"]  # teacher's to student's


class Edge(NamedTuple):
    """One term of the distillation loss: a student on one view follows a teacher on another.

    Args:
        student: the view that the student sees. 0 is the image itself, later ones are harder.
        teacher: the view that the teacher sees.
        by: the teacher's name; `peerlearn list teachers` has them.
        weight: of this term in the sum over all edges.

    >>> Edge(student=0, teacher=1)
    Edge(student=0, teacher=1, by='peer', weight=1.0)
    """

    student: int
    teacher: int
    by: str = "peer"
    weight: float = 1.0


def same_view(*views: int, by: str = "peer", weight: float = 1.0) -> tuple[Edge, ...]:
    """Return edges on which student and teacher see the same view."""
    return tuple(Edge(view, view, by, weight) for view in views)


def hard_to_easy(stages: int, by: str = "peer") -> tuple[Edge, ...]:
    """Return the distillation chain of the paper (Eq. 10): the teacher sees the harder view."""
    return tuple(Edge(view - 1, view, by) for view in range(1, stages + 1))


def easy_to_hard(stages: int, by: str = "peer") -> tuple[Edge, ...]:
    """Return the reversed chain: the teacher sees the easier view."""
    return tuple(Edge(view, view - 1, by) for view in range(1, stages + 1))


def chain_edges(direction: Direction, stages: int, by: str = "peer") -> tuple[Edge, ...]:
    """Return the edges along a chain of views, in the direction of a setting."""
    if direction == "same-difficulty":
        return same_view(*range(1, stages + 1), by=by)
    return (hard_to_easy if direction == "hard-to-easy" else easy_to_hard)(stages, by)
