"""RegionProfile: where a grid is, how clean it is, and what serving there costs."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from heliotrope.api.lists import ListMap, ListSet
from heliotrope.api.scalars import DecimalString, DurationString, Time
from heliotrope.api.struct import Struct, rule
from heliotrope.api.v1alpha1.carbonsource import Source
from heliotrope.api.v1alpha1.common import (
    AGE,
    Column,
    Conditions,
    Currency,
    Decimal,
    Definition,
    Fraction,
    Intensity,
    Name,
    ObservedGeneration,
    Price,
    Resource,
    Text,
)

PollDuration = Annotated[timedelta, DurationString("1s", "24h")]
StaleDuration = Annotated[timedelta, DurationString("1s", "168h")]


class SignalType(StrEnum):
    """What the intensity says: of all generation, or of the generation that one more kWh calls up."""

    AVERAGE = "average"
    MARGINAL = "marginal"


class EmissionFactor(StrEnum):
    """Which emissions count: of the whole life of the plants, or of burning fuel only."""

    LIFECYCLE = "lifecycle"
    DIRECT = "direct"


class Freshness(StrEnum):
    """Whether the current value may be used: never seen is Absent, too old is Stale."""

    FRESH = "Fresh"
    STALE = "Stale"
    ABSENT = "Absent"


class Signal(Struct):
    """The kind of intensity. Values of different kinds are never mixed or compared."""

    type: SignalType = SignalType.AVERAGE
    """Average or marginal intensity."""
    emission_factor: EmissionFactor = EmissionFactor.LIFECYCLE
    """Lifecycle or direct emissions."""


class RoundTripTime(Struct):
    """Network time to another region."""

    region: Name
    """Name of the other region's RegionProfile."""
    milliseconds: Annotated[int, Field(ge=0, le=10_000)]
    """Round-trip time in milliseconds."""


class AcceleratorQuota(Struct):
    """How many accelerators of a type the region has for inference."""

    type: Text
    """Type of the accelerator as the WorkloadVariants name it, for instance `H100-SXM-80GB`."""
    count: Annotated[int, Field(ge=0, le=1_000_000)]
    """Number of accelerators."""


class Capacity(Struct):
    """What the region can carry; an absent field sets no limit."""

    max_concurrent_requests: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Requests in flight in the region at once."""
    max_watts: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """IT power of the region's engines in watts."""
    accelerators: Annotated[tuple[AcceleratorQuota, ...], Field(max_length=32), ListMap("type")] = ()
    """Accelerators by type; a type that is not listed has no limit."""


class RegionProfileSpec(Struct):
    """A grid region as the user describes it."""

    zone: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
    """Grid zone in the source's own naming, for instance `ES`, `US-CAL-CISO` or `CAISO_NORTH`."""
    source: Source
    """Where the carbon intensity comes from."""
    signal: Signal = Signal()
    """The kind of intensity that the source gives."""
    poll_interval: PollDuration = timedelta(minutes=5)
    """How often the source is asked: from 1s to 24h."""
    stale_after: StaleDuration = timedelta(hours=2)
    """Age from which the last value no longer counts and carbon drops out of decisions: from 1s to 168h. For series
    that play faster than real time it is in the time of the series."""
    curtailment_credit: Fraction = 0.0
    """α, from 0 to 1 as a decimal string: a marginal value of zero counts as α × the region's median non-zero value.
    0 takes curtailed power as carbon-free, 1 gives curtailment no credit. Average values are left as they are."""
    pue: Annotated[float, DecimalString(minimum=1, maximum=5)] = 1.2
    """Power usage effectiveness: facility energy per IT energy, a decimal string from 1 to 5. The default is that of an
    efficient data centre; every reported gram states the value used, so set the site's own."""
    wue_liters_per_kwh: Annotated[float, DecimalString(maximum=100)] | None = None
    """Water usage effectiveness in litres per kWh of IT energy, a decimal string; absent: water is unknown."""
    electricity_price_per_kwh: Price | None = None
    """Price of electricity per kWh, a decimal string; absent: the cost of energy is unknown."""
    currency: Currency = "USD"
    """ISO 4217 code of the price's currency. Costs are compared only between regions and variants of one currency."""
    round_trip_times: Annotated[tuple[RoundTripTime, ...], Field(max_length=64), ListMap("region")] = ()
    """Network round-trip times to other regions; a region that is not listed is unknown."""
    capacity: Capacity = Capacity()
    """What the region can carry."""
    largest_share_percent: Annotated[int, Field(ge=1, le=100)] = 100
    """Largest share of all requests that may go to this region, in percent."""
    topology_regions: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1, max_length=63)], ...], Field(max_length=32), ListSet()
    ] = ()
    """Values of the node label `topology.kubernetes.io/region` whose nodes are in this region."""

    @rule(
        "duration(self.staleAfter) >= duration(self.pollInterval)",
        "staleAfter must be at least pollInterval, or every value is stale before the next poll",
        field="staleAfter",
    )
    def _polled_before_stale(self) -> bool:
        return self.stale_after >= self.poll_interval

    @rule(
        "!has(self.source.wattTime) || (self.signal.type == 'marginal' && self.signal.emissionFactor == 'direct')",
        "wattTime gives marginal intensity of direct emissions: set signal.type to marginal and signal.emissionFactor "
        "to direct",
        field="signal",
    )
    def _watttime_is_marginal(self) -> bool:
        return self.source.watt_time is None or (
            self.signal.type is SignalType.MARGINAL and self.signal.emission_factor is EmissionFactor.DIRECT
        )

    @rule(
        "!has(self.source.neso) || (self.signal.type == 'average' && self.signal.emissionFactor == 'direct')",
        "neso gives average intensity of direct emissions: set signal.type to average and signal.emissionFactor to "
        "direct",
        field="signal",
    )
    def _neso_is_direct(self) -> bool:
        return self.source.neso is None or (
            self.signal.type is SignalType.AVERAGE and self.signal.emission_factor is EmissionFactor.DIRECT
        )

    @rule(
        "!(has(self.source.electricityMaps) || has(self.source.energyCharts) || has(self.source.entsoe)) || "
        "self.signal.type == 'average'",
        "electricityMaps, energyCharts and entsoe give average intensity: set signal.type to average",
        field="signal",
    )
    def _grid_mix_is_average(self) -> bool:
        source = self.source
        mix = (source.electricity_maps, source.energy_charts, source.entsoe)
        return self.signal.type is SignalType.AVERAGE or all(each is None for each in mix)


class IntensityReading(Struct):
    """The newest value of the signal."""

    value: Intensity
    """Carbon intensity in gCO2e/kWh, as a decimal string."""
    time: Time
    """Start of the period that the value holds for; its age is the time since then."""
    source: Text
    """Source that gave it, for instance `electricityMaps`."""
    estimated: bool | None = None
    """Whether the source estimated it; absent: the source does not say."""
    signal_type: SignalType
    """Average or marginal."""
    emission_factor: EmissionFactor
    """Lifecycle or direct."""


class ForecastPoint(Struct):
    """One point of the forecast."""

    time: Time
    """Start of the period."""
    value: Intensity
    """Forecast intensity in gCO2e/kWh, as a decimal string."""
    lower: Intensity | None = None
    """What it will be below with a probability of 10 %, as a decimal string; absent: the uncertainty is unknown."""
    upper: Intensity | None = None
    """What it will be above with a probability of 10 %, as a decimal string; absent: the uncertainty is unknown."""


class Forecast(Struct):
    """The intensity expected in the hours ahead."""

    issued_at: Time
    """When it was made."""
    source: Text
    """Who made it: the provider, or `heliotrope` with the name of the method."""
    points: Annotated[tuple[ForecastPoint, ...], Field(max_length=96)]
    """Points in the order of time."""


class ForecastError(Struct):
    """How wrong earlier forecasts turned out to be."""

    horizon_hours: Annotated[int, Field(ge=1, le=72)]
    """How far ahead the compared forecasts looked, in hours: all hours up to this one count alike."""
    mean_absolute_error: Decimal
    """Mean absolute error in gCO2e/kWh, as a decimal string."""
    baseline_mean_absolute_error: Decimal | None = None
    """The same of the forecast "as yesterday at this hour", as a decimal string."""
    samples: Annotated[int, Field(ge=1, le=10_000_000)]
    """How many points were compared."""


class RegionProfileStatus(Struct):
    """A grid region as the operator sees it. It changes on new values and transitions only."""

    observed_generation: ObservedGeneration | None = None
    """The `metadata.generation` that this status answers."""
    conditions: Conditions = ()
    """`Accepted`: the spec can be used. `CredentialsAccepted`: the source takes its key. `SignalFresh`: the intensity
    may enter decisions. `CeilingHolds`: a hub limits what the region may use."""
    freshness: Freshness | None = None
    """Fresh, Stale or Absent; carbon counts in decisions only while it is Fresh."""
    intensity: IntensityReading | None = None
    """The newest value, also when it is stale; absent: none was ever received."""
    forecast: Forecast | None = None
    """The newest forecast."""
    forecast_error: ForecastError | None = None
    """Measured error of past forecasts."""


class RegionProfile(Resource):
    """A grid region: its carbon intensity, its overheads and prices, and its distance from other regions."""

    definition: ClassVar[Definition] = Definition(
        plural="regionprofiles",
        short_name="rp",
        namespaced=False,
        columns=(
            Column("Zone", ".spec.zone", "Grid zone."),
            Column("Intensity", ".status.intensity.value", "Newest carbon intensity in gCO2e/kWh."),
            Column("Freshness", ".status.freshness", "Fresh, Stale or Absent."),
            Column("Signal", ".spec.signal.type", "Average or marginal intensity."),
            Column("Measured", ".status.intensity.time", "Age of the value.", type="date"),
            Column("Source", ".status.intensity.source", "Source of the value.", priority=1),
            Column("PUE", ".spec.pue", "Power usage effectiveness.", priority=1),
            AGE,
        ),
    )

    kind: Literal["RegionProfile"] = "RegionProfile"
    spec: RegionProfileSpec
    """What the user states about the region."""
    status: RegionProfileStatus | None = None
    """What the operator knows about the region."""
