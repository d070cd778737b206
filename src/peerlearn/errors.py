"""The one error that is the caller's to mend."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """What is wrong, where, and what to do next, in one line; nothing was changed."""


def did_you_mean(problem: str, given: str, known: Iterable[str]) -> str:
    """The problem, and the known name nearest to the one given, or all of them.

    >>> did_you_mean("there is no method 'err'", "err", ["er", "gsa"])
    "there is no method 'err'; did you mean er?"
    """
    known = list(known)
    near = difflib.get_close_matches(given, known, n=1)
    return f"{problem}; " + (f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}")
