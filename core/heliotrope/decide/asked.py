"""What a request asks for by its headers, beside its body. Whether it gets it is the policy's to say."""

from collections.abc import Mapping
from dataclasses import dataclass

from heliotrope.api.scalars import parse_duration, parse_time
from heliotrope.decide.policy import DEFAULT_ORDER, Term
from heliotrope.errors import InvalidInputError

MAX_LENGTH = 1_024
"""Of one header's value."""
LARGEST_WEIGHT = 1e6
MAX_REGIONS = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's wishes; None and empty: it has none."""

    service_class: str | None = None
    inference_objective: str | None = None
    """Name of an InferenceObjective."""
    priority: int | None = None
    ttft_slo_seconds: float | None = None
    tpot_slo_seconds: float | None = None
    order: tuple[Term, ...] = ()
    """Compare in this order."""
    weights: Mapping[Term, float] | None = None
    """Compare by these weights instead."""
    regions: frozenset[str] | None = None
    """Only these."""


NOTHING_ASKED = Asked()


def parse_objective(text: str) -> tuple[tuple[Term, ...], Mapping[Term, float] | None]:
    """Order or weights out of a header: `energy,latency` or `carbon=2,latency=0.5`.

    Raises:
        InvalidInputError: what is wrong; the path is empty.
    """
    parts = [part.strip() for part in _bounded(text).split(",")]
    if any("=" in part for part in parts):
        weights = {}
        for part in parts:
            name, _, value = part.partition("=")
            term = _term(name.strip())
            if term in weights:
                raise InvalidInputError("", f"names {term} twice")
            weights[term] = _weight(term, value.strip())
        if not sum(weights.values()) > 0.0:
            raise InvalidInputError("", "needs a weight above 0")
        return (), weights
    order = tuple(_term(part) for part in parts)
    if len(set(order)) != len(order):
        raise InvalidInputError("", "must name each term once")
    return order, None


def parse_regions(text: str) -> frozenset[str]:
    """Names of regions out of a header: `es,no`.

    Raises:
        InvalidInputError: what is wrong; the path is empty.
    """
    names = frozenset(name for part in _bounded(text).split(",") if (name := part.strip()))
    if not 1 <= len(names) <= MAX_REGIONS:
        raise InvalidInputError("", f"must name 1 to {MAX_REGIONS} regions, separated by commas")
    return names


def parse_priority(text: str) -> int:
    """A 32-bit integer out of a header.

    Raises:
        InvalidInputError: if it is none; the path is empty.
    """
    digits = text.strip()
    bare = digits.removeprefix("-")
    if not (bare.isascii() and bare.isdigit() and len(bare) <= 10 and -(2**31) <= int(digits) < 2**31):
        raise InvalidInputError("", "must be a whole number of 32 bits")
    return int(digits)


def parse_deadline(text: str, now_unix_s: float) -> float:
    """Unix seconds out of a header: an RFC 3339 time, or a duration from now such as `2h`.

    Raises:
        InvalidInputError: if it is neither; the path is empty.
    """
    value = _bounded(text).strip()
    try:
        if value[:1].isdigit() and value[-1:] in ("h", "m", "s"):
            return now_unix_s + parse_duration(value).total_seconds()
        return parse_time(value).timestamp()
    except ValueError:
        raise InvalidInputError("", "must be a time such as 2026-06-01T06:00:00Z, or a duration such as 2h") from None


def _bounded(text: str) -> str:
    if len(text) > MAX_LENGTH:
        raise InvalidInputError("", f"is longer than {MAX_LENGTH} characters")
    return text


def _term(name: str) -> Term:
    try:
        return Term(name)
    except ValueError:
        known = ", ".join((*DEFAULT_ORDER, Term.RISK))
        raise InvalidInputError("", f"{name[:40]!r} is no term; the terms are {known}") from None


def _weight(term: Term, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= LARGEST_WEIGHT:
        raise InvalidInputError("", f"the weight of {term} must be a number from 0 to {LARGEST_WEIGHT:g}")
    return value
