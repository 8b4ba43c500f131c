"""Ceilings that a hub publishes for one cluster: how many accelerators and watts it may use in each region.

A ceiling bounds what is planned and promises nothing. A member clamps it by its own service-level objectives: load that
needs more gets more. It holds until it expires; what has expired, cannot be read or never came is no ceiling at all.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from heliotrope.api.scalars import parse_time
from heliotrope.errors import InvalidInputError

SCHEMA = 1
MAX_BYTES = 1024 * 1024
MAX_CEILINGS = 4_096
MAX_NAME = 253
LONGEST_VALIDITY_S = 7 * 86_400.0
"""A document that claims to hold for longer is refused: nobody could take it back."""
CLOCK_SKEW_S = 300.0
"""A document may seem to be issued this far in the future, as clocks differ."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One limit; at least one of the two numbers is there."""

    region: str
    accelerator: str | None
    """Type as WorkloadVariants name it; None: of all types together."""
    accelerators: int | None = None
    """Most accelerators in use."""
    watts: int | None = None
    """Most IT power of the engines, in watts."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a hub published for a member."""

    version: str
    """Changes with the ceilings and only then."""
    issued_unix_s: float
    expires_unix_s: float
    ceilings: tuple[Ceiling, ...]

    def holds(self, now_unix_s: float) -> bool:
        """Whether it may be used."""
        return self.issued_unix_s - CLOCK_SKEW_S <= now_unix_s < self.expires_unix_s

    def ceiling(self, region: str, accelerator: str) -> int | None:
        """Most accelerators of a type in a region, the lower of its own limit and that of all types; None: no limit."""
        found = [
            each.accelerators
            for each in self.ceilings
            if each.region == region and each.accelerator in (None, accelerator) and each.accelerators is not None
        ]
        return min(found, default=None)

    def replicas(self, region: str, accelerator: str, accelerators_per_replica: int) -> int | None:
        """The same in replicas that take so many accelerators each."""
        most = self.ceiling(region, accelerator)
        return None if most is None else most // max(accelerators_per_replica, 1)

    def watts(self, region: str) -> int | None:
        """Most IT power in a region; None: no limit."""
        return min(
            (each.watts for each in self.ceilings if each.region == region and each.watts is not None), default=None
        )

    @property
    def regions(self) -> frozenset[str]:
        """Regions that have a ceiling."""
        return frozenset(each.region for each in self.ceilings)


def parse_ceilings(body: bytes, now_unix_s: float) -> Ceilings:
    """Read a hub's document. Fields that are not known are left aside, so that hubs may be newer than members.

    Args:
        body: JSON text.
        now_unix_s: the time, to refuse what has expired or comes from the future.

    Raises:
        InvalidInputError: naming the field that is wrong.
    """
    if len(body) > MAX_BYTES:
        raise InvalidInputError("", f"the document is larger than {MAX_BYTES} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidInputError("", "the document is not JSON") from None
    fields = _object(document, "")
    if fields.get("schema") != SCHEMA:
        raise InvalidInputError(
            "schema", f"{fields.get('schema')!r} is not {SCHEMA}: hub and member must be upgraded together"
        )
    issued, expires = _time(fields, "issuedAt"), _time(fields, "expiresAt")
    if issued > now_unix_s + CLOCK_SKEW_S:
        raise InvalidInputError("issuedAt", "is in the future: a clock is wrong")
    if not issued < expires <= issued + LONGEST_VALIDITY_S:
        raise InvalidInputError("expiresAt", f"must be after issuedAt, by at most {LONGEST_VALIDITY_S:.0f} s")
    if expires <= now_unix_s:
        raise InvalidInputError("expiresAt", "the document has expired")
    rows = fields.get("ceilings")
    if not isinstance(rows, list) or len(rows) > MAX_CEILINGS:
        raise InvalidInputError("ceilings", f"must be a list of at most {MAX_CEILINGS}")
    ceilings = tuple(_ceiling(row, f"ceilings[{number}]") for number, row in enumerate(rows))
    named = [(each.region, each.accelerator) for each in ceilings]
    if len(set(named)) < len(named):
        raise InvalidInputError("ceilings", "two are of the same region and accelerator")
    return Ceilings(_text(fields, "version", ""), issued, expires, ceilings)


def ceiling_document(ceiling: Ceiling) -> dict[str, Any]:
    """One ceiling as it stands in a document."""
    named = {
        "region": ceiling.region,
        "accelerator": ceiling.accelerator,
        "accelerators": ceiling.accelerators,
        "watts": ceiling.watts,
    }
    return {name: value for name, value in named.items() if value is not None}


def _ceiling(row: object, path: str) -> Ceiling:
    fields = _object(row, path)
    accelerators, watts = count(fields, "accelerators", path), count(fields, "watts", path)
    if accelerators is None and watts is None:
        raise InvalidInputError(path, "needs accelerators or watts")
    accelerator = None if fields.get("accelerator") is None else _text(fields, "accelerator", path)
    return Ceiling(_text(fields, "region", path), accelerator, accelerators, watts)


def count(fields: Mapping[str, Any], name: str, path: str) -> int | None:
    """A whole number of at least 0; None if it is absent.

    Raises:
        InvalidInputError: if it is anything else.
    """
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000_000:
        raise InvalidInputError(f"{path}.{name}", f"{value!r:.40} is not a whole number from 0 to 1000000000")
    return value


def _object(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInputError(path, "must be an object")
    return value


def _text(fields: Mapping[str, Any], name: str, path: str) -> str:
    value, full = fields.get(name), f"{path}.{name}" if path else name
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        raise InvalidInputError(full, f"must be a text of 1 to {MAX_NAME} characters")
    return value


def _time(fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    if not isinstance(value, str):
        raise InvalidInputError(name, "must be an RFC 3339 time")
    try:
        found = parse_time(value).timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(name, str(error)) from None
    if not isfinite(found):
        raise InvalidInputError(name, "must be an RFC 3339 time")
    return found
