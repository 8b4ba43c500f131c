"""How a poll of a carbon source ended, and when to try again."""

from enum import StrEnum

from heliotrope.errors import (
    BadAnswerError,
    CredentialsMissingError,
    CredentialsRefusedError,
    NoDataError,
    SignalUnavailableError,
    ThrottledError,
)
from heliotrope_operator.workqueue import Backoff

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
LONGEST_MISSING_RETRY_S = 30.0
"""A missing Secret is looked for at the API server only, which is cheap; it counts soon after it is made."""


class Outcome(StrEnum):
    """Of one poll, as the metric `heliotrope_carbon_polls_total` counts it."""

    SUCCESS = "success"
    CREDENTIALS_MISSING = "credentials_missing"
    CREDENTIALS_REFUSED = "credentials_refused"
    THROTTLED = "throttled"
    NO_DATA = "no_data"
    BAD_ANSWER = "bad_answer"
    TIMEOUT = "timeout"
    ERROR = "error"


_OF_ERRORS: dict[type[SignalUnavailableError], Outcome] = {
    CredentialsMissingError: Outcome.CREDENTIALS_MISSING,
    CredentialsRefusedError: Outcome.CREDENTIALS_REFUSED,
    ThrottledError: Outcome.THROTTLED,
    NoDataError: Outcome.NO_DATA,
    BadAnswerError: Outcome.BAD_ANSWER,
}


def outcome_of(error: Exception) -> Outcome:
    """What a poll that failed counts as."""
    if isinstance(error, TimeoutError):
        return Outcome.TIMEOUT
    return next((outcome for kind, outcome in _OF_ERRORS.items() if isinstance(error, kind)), Outcome.ERROR)


def backoff_of(error: Exception, poll_s: float) -> Backoff:
    """Waits between attempts that fail so.

    Never longer than it would be until the next poll, a minute at least; a key that is missing or refused is looked at
    again within a minute, so that a new one counts soon.
    """
    longest_s = max(poll_s, LONGEST_RETRY_S)
    if isinstance(error, CredentialsMissingError):
        longest_s = LONGEST_MISSING_RETRY_S
    elif isinstance(error, CredentialsRefusedError):
        longest_s = LONGEST_RETRY_S
    return Backoff(FIRST_RETRY_S, longest_s)


def asked_to_wait_s(error: Exception) -> float:
    """Seconds that the source wants to be left alone; 0 if it does not say."""
    return error.retry_after_s or 0.0 if isinstance(error, ThrottledError) else 0.0
