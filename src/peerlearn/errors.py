"""The one error that the caller can put right."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """What is wrong, where, and what to do next, in one line; nothing was changed."""


class UnknownNameError(UserError, KeyError):
    """There is nothing of that name; a KeyError as well, which mappings promise."""

    __str__ = ValueError.__str__  # a KeyError's would put quotes around the text


def did_you_mean(problem: str, given: str, known: Iterable[str]) -> str:
    """The problem, and the known name nearest to the one given, or all of them.

    >>> did_you_mean("there is no method 'err'", "err", ["er", "gsa"])
    "there is no method 'err'; did you mean er?"
    """
    known = list(known)
    return problem + (nearest(given, known) or (f"; known: {', '.join(known)}" if known else ""))


def nearest(given: str, known: Iterable[str]) -> str:
    """A question about the known name nearest to the one given; nothing if none is near."""
    near = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
