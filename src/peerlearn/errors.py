"""The one error that the caller can put right."""

import difflib
from collections.abc import Iterable

FEW = 16  # names that a message may list
SAME = 5  # letters at the start that make two names near


class UserError(ValueError):
    r"""What is wrong, where, and what to do next, in one line; nothing was changed.

    >>> print(UserError("two\nlines: rename the file"))
    two\nlines: rename the file
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in message))


class UnknownNameError(UserError, KeyError):
    """There is nothing of that name; a KeyError as well, which mappings promise."""

    __str__ = ValueError.__str__  # a KeyError's would put quotes around the text


def out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out; torch says so in words."""
    words = ("allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(text in str(error) for text in words)


def did_you_mean(problem: str, given: str, known: Iterable[str], listing: str = "") -> str:
    """The problem, and the known name nearest to the one given; all of them if none is near.

    listing: the command that lists them, said instead where they are many.

    >>> did_you_mean("there is no method 'err'", "err", ["er", "gsa"])
    "there is no method 'err'; did you mean er?"
    """
    known = list(known)
    if near := nearest(given, known):
        return problem + near
    if len(known) <= FEW:
        return problem + (f"; known: {', '.join(known)}" if known else "")
    return problem + (f"; see {listing}" if listing else "")


def nearest(given: str, known: Iterable[str]) -> str:
    """A question about the known name nearest to the one given; nothing if none is near."""
    by_letters = {name.lower(): name for name in known}
    letters = given.lower()
    near = difflib.get_close_matches(letters, by_letters, n=1, cutoff=0.7)
    near = near or [n for n in by_letters if n[:SAME] == letters[:SAME] and len(letters) >= SAME]
    return f"; did you mean {by_letters[near[0]]}?" if near else ""
