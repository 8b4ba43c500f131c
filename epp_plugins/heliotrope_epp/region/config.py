"""The file that names the regions of a tier and how their state is read: decoded strictly, every error with its key."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from heliotrope_epp.config.document import read_mapping
from heliotrope_epp.config.problems import Problems
from heliotrope_epp.director.wishes import REGION_HEADER
from heliotrope_epp.plugins.parameters import StrictModel
from heliotrope_epp.plugins.scalars import Seconds

API_VERSION = "heliotrope.io/v1alpha1"
KIND = "RegionTier"
MAX_REGIONS = 64

_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
RegionName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=_NAME)]
HeaderName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[a-z0-9-]+$")]


class PollMode(StrEnum):
    """When regions are asked."""

    STAGGERED = "Staggered"
    """Each at its own phase: never all at one moment, and no two schedulers in step."""
    SYNCHRONOUS = "Synchronous"
    """All at once, and used together."""


class WhenFull(StrEnum):
    """What becomes of a request that may wait when the queue of those that do is full."""

    PLACE = "Place"
    REFUSE = "Refuse"


class RegionEntry(StrictModel):
    """One region: a cluster behind one gateway."""

    name: RegionName
    """Of its RegionProfile, and the value of the header that the gateway's routes match."""
    state_urls: tuple[Annotated[str, StringConstraints(max_length=2048)], ...] = Field(min_length=1, max_length=8)
    """`/v1/state` on the metrics port of its pickers; the next one is asked where one does not answer."""
    state_region: RegionName | None = None
    """What its pickers call it; absent: `name`."""
    ca_file: str | None = None
    """Certificates that its `https` state addresses are checked against; absent: the system's."""
    dispatch: Seconds = Field(default=0.005, le=60.0)
    """Expected between its gateway and an engine's queue."""
    batch_capacity: int | None = Field(default=None, ge=1, le=100_000)
    """Sequences that one engine is given at most; absent: what its pickers tell."""


class Polling(StrictModel):
    """How state is read."""

    interval: Seconds = Field(default=1.0, ge=0.05, le=60.0)
    timeout: Seconds = Field(default=0.5, ge=0.01, le=60.0)
    longest_interval: Seconds = Field(default=5.0, ge=0.05, le=600.0)
    """What the time between two tries grows to while a region does not answer."""
    lost_after_polls: int = Field(default=3, ge=1, le=100)
    """Intervals without a new state after which a region takes no requests."""
    mode: Literal["Staggered", "Synchronous"] = "Staggered"


class Deadlines(StrictModel):
    """The queue of requests that named a deadline."""

    max_requests: int = Field(default=1_000, ge=0, le=100_000)
    longest_wait: Seconds = Field(default=600.0, le=86_400.0)
    when_full: Literal["Place", "Refuse"] = "Place"


class RegionTierDocument(StrictModel):
    """The whole file."""

    api_version: Literal["heliotrope.io/v1alpha1"]
    kind: Literal["RegionTier"]
    regions: tuple[RegionEntry, ...] = Field(min_length=1, max_length=MAX_REGIONS)
    home_region: RegionName | None = None
    region_header: HeaderName = REGION_HEADER
    schedulers: int = Field(default=1, ge=1, le=1_000)
    polling: Polling = Polling()
    deadlines: Deadlines = Deadlines()
    windows_kept: int = Field(default=200, ge=0, le=10_000)


@dataclass(frozen=True, slots=True)
class RegionTier:
    """A checked file."""

    regions: tuple[RegionEntry, ...]
    home_region: str | None
    """Where this scheduler runs; network times count from there."""
    region_header: str
    schedulers: int
    """Region schedulers that share these regions, this one included."""
    polling: Polling
    poll_mode: PollMode
    deadlines: Deadlines
    when_full: WhenFull
    windows_kept: int
    """Of the newest windows, for `/debug/windows`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the regions, in the file's order."""
        return tuple(region.name for region in self.regions)


def read(text: str) -> RegionTier:
    """A file's text.

    Raises:
        InvalidInputError: with the path of the first problem, as in `regions[1].stateUrls[0]`; a line for each.
    """
    problems = Problems()
    document = problems.decode(RegionTierDocument, read_mapping(text))
    problems.raise_any()
    assert document is not None
    _check(document, problems)
    problems.raise_any()
    return RegionTier(
        regions=document.regions,
        home_region=document.home_region,
        region_header=document.region_header,
        schedulers=document.schedulers,
        polling=document.polling,
        poll_mode=PollMode(document.polling.mode),
        deadlines=document.deadlines,
        when_full=WhenFull(document.deadlines.when_full),
        windows_kept=document.windows_kept,
    )


def _check(document: RegionTierDocument, problems: Problems) -> None:
    seen: dict[str, int] = {}
    for i, region in enumerate(document.regions):
        first = seen.setdefault(region.name, i)
        if first != i:
            problems.add(f"regions[{i}].name", f"{region.name} is that of regions[{first}] already")
        for j, url in enumerate(region.state_urls):
            if not url.startswith(("http://", "https://")):
                problems.add(f"regions[{i}].stateUrls[{j}]", "must begin with http:// or https://")
        if region.ca_file is not None and not Path(region.ca_file).is_file():
            problems.add(f"regions[{i}].caFile", f"{region.ca_file} is not a file")
    polling = document.polling
    if polling.timeout > polling.interval:
        problems.add("polling.timeout", "must not exceed polling.interval, or polls pile up")
    if polling.longest_interval < polling.interval:
        problems.add("polling.longestInterval", "must not be below polling.interval")
