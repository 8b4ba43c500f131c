"""Regions, sites and schedulers of a scenario."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope_sim.scenario.base import Count, Name, NonNegative, Positive, Strict


class Intensity(Strict):
    """Where the carbon intensity of a grid comes from: exactly one of zone, csv and grams_per_kwh."""

    zone: Name | None = None
    """An hourly series of 2022 that ships with Heliotrope: AT, BE, BR, ES, GB, NO or US-CAL-CISO."""
    csv: str | None = None
    """A file with one row per hour or five minutes; relative to the scenario. A name that ends in `.gz` is
    decompressed."""
    time_column: str = "datetime_utc"
    """Of the csv: start of the period, RFC 3339; without an offset it is UTC."""
    value_column: str | None = None
    """Of the csv: gCO2e/kWh."""
    estimated_column: str | None = None
    """Of the csv: says `true` where the source estimated the value; absent: not known."""
    grams_per_kwh: NonNegative | None = None
    """One value that never changes; 0 is a valid, clean one."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(each is not None for each in (self.zone, self.csv, self.grams_per_kwh)) != 1:
            raise ValueError("set exactly one of zone, csv and grams_per_kwh")
        if (self.csv is None) != (self.value_column is None):
            raise ValueError("csv and value_column belong together")
        return self


class Region(Strict):
    """A grid and what serving there costs. With the name of a RegionProfile it replaces what it states of that one."""

    name: Name
    intensity: Intensity | None = None
    """Absent: unknown, and then carbon counts in no decision and no grams are known."""
    signal_type: SignalType = SignalType.AVERAGE
    """What the intensity says: of all generation (average), or of one more kWh (marginal)."""
    emission_factor: EmissionFactor = EmissionFactor.LIFECYCLE
    """Which emissions count: of the plants' whole life (lifecycle), or of burning fuel (direct)."""
    pue: Annotated[float, Field(ge=1.0, le=5.0)] = 1.2
    """Facility energy per IT energy."""
    rtt_ms: dict[Name, NonNegative] = Field(default_factory=dict)
    """Round trips to other regions in milliseconds; one direction is enough. To itself: 0 if not stated."""
    aws_region: Name | None = None
    """An AWS region whose measured round trips (`data/aws-interregion-rtt`) hold where `rtt_ms` says nothing."""
    largest_share_percent: Annotated[int, Field(ge=1, le=100)] = 100
    """Largest share of all requests that may go there."""
    max_concurrent_requests: Annotated[int, Field(ge=0)] | None = None
    """Requests in flight there at once, shared evenly by its engines; absent: what their batches hold."""


class Dispatch(StrEnum):
    """Which of a site's engines gets a request."""

    ROUND_ROBIN = "round_robin"
    LEAST_LOADED = "least_loaded"


class PrefillDecode(Strict):
    """Prefill and decode on engines of their own."""

    prefill_engines: Count
    """The first so many engines of every node prefill, the others decode."""
    link_gigabits_per_second: Positive
    link_latency_seconds: NonNegative = 0.0
    link_nanojoules_per_bit: NonNegative = 0.0


class Site(Strict):
    """Identical nodes of identical engines in one region."""

    region: Name
    """Name of a region."""
    name: Name | None = None
    """By default the region's."""
    engine: str
    """A shipped engine profile, or a profile file (`*.json`, docs/engine-models.md) relative to the scenario."""
    nodes: Count = 1
    engines_per_node: Count = 8
    batch_capacity: Count | None = None
    """Most sequences in an engine's batch; by default the profile's."""
    host_watts_per_node: NonNegative = 300.0
    clock_mhz: Count | None = None
    """SM clock of all engines; by default the profile's."""
    dispatch: Dispatch = Dispatch.ROUND_ROBIN
    prefill_decode: PrefillDecode | None = None
    """Absent: every engine does both."""


class Where(StrEnum):
    """Where region schedulers are."""

    EACH_REGION = "each_region"
    HOME = "home"


class Schedulers(Strict):
    """Region schedulers. Requests arrive at them."""

    where: Where = Where.EACH_REGION
    """`each_region`: in every region with sites; a request that goes to another region waits in the window of a
    scheduler there too (as in the paper carbon-slo-tension). `home`: all in one region, and they send to the sites
    directly (as `heliotrope epp --tier region` does)."""
    count: Annotated[int, Field(ge=1, le=256)] = 1
    """Per region, or at home."""
    home: Name | None = None
    """Region of `where: home`; round trips count from there."""

    @model_validator(mode="after")
    def _home(self) -> Self:
        if (self.where is Where.HOME) != (self.home is not None):
            raise ValueError("home belongs to where: home, and is needed there")
        return self


class Polls(Strict):
    """When schedulers learn the state of sites."""

    interval_seconds: Positive = 1.0
    staggered: bool = False
    """Each site at its own time of the interval; else all at once."""


class DecisionTime(Strict):
    """How long a decision takes in the simulation: base + per request + per node of a search, up to the limit."""

    base_seconds: NonNegative = 0.0005
    seconds_per_request: NonNegative = 2e-6
    seconds_per_node: NonNegative = 2e-6
    limit_seconds: Positive = 0.25
