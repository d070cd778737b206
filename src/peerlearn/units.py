"""Numbers and names as a person reads them."""


def duration(seconds: float) -> str:
    """A time in its two largest units.

    >>> duration(21.53), duration(191.8), duration(7500)
    ('21.5 s', '3 min 12 s', '2 h 5 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if round(seconds) < 3600:
        return "{} min {} s".format(*divmod(round(seconds), 60))
    return "{} h {} min".format(*divmod(round(seconds / 60), 60))


def percent(value: float | None) -> str:
    """A share in [0, 1] in percent; a dash for one that is not defined.

    >>> percent(0.5123), percent(None)
    ('51.2', '-')
    """
    return "-" if value is None else f"{100 * value:.1f}"


def printable(name: str) -> str:
    r"""A name from elsewhere without what could break a line or steer a terminal.

    >>> print(printable("two\nlines"))
    two?lines
    """
    return "".join(c if c.isprintable() else "?" for c in name)
