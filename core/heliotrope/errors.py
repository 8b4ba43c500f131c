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
    """A source of carbon intensity or of metrics gave no usable value; the caller keeps the last until it is stale."""


class CredentialsMissingError(SignalUnavailableError):
    """A key that the source needs is nowhere to be found; the message says where it was looked for."""


class CredentialsRefusedError(SignalUnavailableError):
    """The source does not accept the key; it is read anew and tried again soon."""


class ThrottledError(SignalUnavailableError):
    """The source was asked too often."""

    def __init__(self, problem: str, retry_after_s: float | None = None) -> None:
        """`retry_after_s` is what the source asks to wait, in seconds; None if it does not say."""
        super().__init__(problem)
        self.retry_after_s = retry_after_s


class NoDataError(SignalUnavailableError):
    """The source works and has no value for the place and time asked for."""


class BadAnswerError(SignalUnavailableError):
    """The source's answer is not one that its API documents, or holds what cannot be an intensity."""


class SolverError(HeliotropeError):
    """A solver failed on a program; whoever asked falls back (to greedy, to what holds already) and says so."""


class InfeasibleError(SolverError):
    """A program has no solution; whoever asked relaxes what may yield."""


class UnknownProfileError(InvalidInputError):
    """An engine profile is named that does not exist."""
