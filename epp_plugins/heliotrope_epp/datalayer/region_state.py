"""The page `/v1/state`: what a picker tells schedulers of regions about its engines (docs/region-tier.md).

Means over the engines instead of rows of each: that is what carbon-slo-tension §III-A polls, and what keeps the page
and the decision small however many engines a region has. A page of a newer minor form may hold more fields; `version`
changes when a field changes its meaning.
"""

from typing import Annotated

import msgspec

from heliotrope.errors import InvalidInputError

VERSION = 1
PATH = "/v1/state"
MAX_BYTES = 256 * 1024

Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class EngineStep(msgspec.Struct, frozen=True):
    """The step model of most of a region's engines."""

    name: Name
    """Of the shipped profile, or of the WorkloadVariant that spells the coefficients out."""
    engines: Count
    """How many of the region's engines have it."""
    coefficients: dict[str, float]
    """By `heliotrope.engine.coefficients.Coefficient`, in lower case; units there."""


class RegionLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The engines of one region. None: unknown. Means are over `engines`."""

    region: Name | None
    """None: endpoints whose region nothing tells."""
    engines: Count
    """Awake, with metrics that are not stale."""
    idle_engines: Count
    """Of these, those with nothing in flight."""
    asleep_engines: Count
    unknown_engines: Count
    """Without fresh metrics."""
    running: Amount | None = None
    """Mean batch of an engine."""
    waiting: Amount | None = None
    """Mean requests in an engine's queue."""
    waiting_tokens: Amount | None = None
    """Mean of their uncached prompt tokens."""
    kv_tokens: Amount | None = None
    """Mean tokens in the KV cache."""
    kv_capacity_tokens: Amount | None = None
    """Mean tokens that it can hold."""
    kv_usage: Share | None = None
    """Mean share of KV blocks in use."""
    prefill_duty: Share | None = None
    """Mean share of recent time in prefill."""
    batch_capacity: Amount | None = None
    """Mean sequences that an engine may have in its batch."""
    free_slots: Amount | None = None
    """Places in the batches of all engines together that neither a running nor a waiting request takes."""
    engine: EngineStep | None = None


class StatePage(msgspec.Struct, frozen=True, kw_only=True):
    """The whole page."""

    version: int
    pool: str | None
    """`namespace/name` of the InferencePool; None for a picker on a folder."""
    time_unix_s: float
    regions: tuple[RegionLoad, ...]


def encode(page: StatePage) -> bytes:
    """As JSON."""
    return msgspec.json.encode(page)


def decode(body: bytes) -> StatePage:
    """The page that a picker sent.

    Raises:
        InvalidInputError: what is wrong with it, and where.
    """
    try:
        page = msgspec.json.decode(body, type=StatePage)
    except msgspec.ValidationError as error:
        raise InvalidInputError("", f"is no state of a region: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidInputError("", "is not JSON") from None
    if page.version != VERSION:
        raise InvalidInputError("version", f"is {page.version}; this process reads {VERSION}")
    return page
