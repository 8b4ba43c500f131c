"""The one tree of errors. A class exists for each case that somebody handles."""


class HeliotropeError(Exception):
    """Root of every error that Heliotrope raises on purpose."""


class InvalidInputError(HeliotropeError):
    """Something a user or client gave us is wrong; the message names the field and what to do."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class SignalUnavailableError(HeliotropeError):
    """A carbon-intensity source gave no usable value; the caller keeps the last one until it is stale."""


class UnknownProfileError(InvalidInputError):
    """An engine profile is named that does not exist."""
