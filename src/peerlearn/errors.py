"""The one error that is the caller's to mend."""


class UserError(ValueError):
    """What is wrong, where, and what to do next, in one line; nothing was changed."""
