"""Where a region's carbon intensity comes from: exactly one of the sources."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from heliotrope.api.lists import ListMap
from heliotrope.api.scalars import Time
from heliotrope.api.struct import Struct, rule
from heliotrope.api.v1alpha1.common import Intensity, Name, Namespace, SecretKeyRef, Text, Url

ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
ForecastHours = Annotated[int, Field(ge=0, le=72)]


class ElectricityMapsVersion(StrEnum):
    """Version of the Electricity Maps API."""

    V3 = "v3"
    V4 = "v4"


class DataCenter(Struct):
    """A cloud provider's region, which Electricity Maps translates to a zone."""

    provider: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9-]+$")]
    """Cloud provider in lower case, for instance `gcp`."""
    region: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9-]+$")]
    """Region of that provider in lower case, for instance `europe-west1`."""


class ElectricityMaps(Struct):
    """Electricity Maps: average intensity of most grids, with forecasts on paid plans."""

    credentials_secret_ref: SecretKeyRef
    """Key of the Secret that holds the API token."""
    base_url: Url = "https://api.electricitymaps.com"
    """Address of the API, without its version."""
    api_version: ElectricityMapsVersion = ElectricityMapsVersion.V3
    """Version of the API."""
    data_center: DataCenter | None = None
    """Asks for a cloud provider's region; the answer has to be for `spec.zone`, the grid zone in which it lies."""
    disable_estimations: bool = False
    """Refuses values that the provider estimated; the signal is then absent more often."""
    forecast_hours: ForecastHours = 24
    """Length of the forecast asked for, in hours; 0 asks for none (free plans have none)."""


class WattTime(Struct):
    """WattTime: absolute marginal operating emissions rate (`co2_moer`), measured and forecast."""

    username_secret_ref: SecretKeyRef
    """Key of the Secret that holds the user name."""
    password_secret_ref: SecretKeyRef
    """Key of the Secret that holds the password."""
    base_url: Url = "https://api.watttime.org"
    """Address of the API."""
    forecast_hours: ForecastHours = 24
    """Length of the forecast asked for, in hours."""


class Neso(Struct):
    """The Carbon Intensity API of Great Britain's system operator; needs no key."""

    base_url: Url = "https://api.carbonintensity.org.uk"
    """Address of the API."""
    region_id: Annotated[int, Field(ge=1, le=17)] | None = None
    """Number of a region of Great Britain (1 to 17), which has forecasts only; absent: the nation."""


class EnergyCharts(Struct):
    """Energy-Charts of Fraunhofer ISE: European countries, with a forecast; needs no key."""

    base_url: Url = "https://api.energy-charts.info"
    """Address of the API."""
    country: Annotated[str, StringConstraints(min_length=2, max_length=8, pattern=r"^[a-z]{2,8}$")]
    """Country in lower case, for instance `de`."""


class GenerationFactor(Struct):
    """The emission factor of one production type."""

    psr_type: Annotated[str, StringConstraints(min_length=3, max_length=3, pattern=r"^B[0-9]{2}$")]
    """Production type as ENTSO-E codes it, for instance `B04` for fossil gas."""
    grams_per_kwh: Intensity
    """Emissions of that production in gCO2e/kWh, as a decimal string."""


class Entsoe(Struct):
    """The ENTSO-E transparency platform: generation per type, which emission factors turn into intensity."""

    credentials_secret_ref: SecretKeyRef
    """Key of the Secret that holds the security token."""
    base_url: Url = "https://web-api.tp.entsoe.eu/api"
    """Address of the API."""
    domain: Annotated[str, StringConstraints(min_length=16, max_length=16, pattern=r"^[0-9A-Z-]{16}$")]
    """Energy identification code of the bidding zone, for instance `10YES-REE------0`."""
    factors: Annotated[tuple[GenerationFactor, ...], Field(max_length=32), ListMap("psr_type")] = ()
    """Emission factors that replace the built-in ones."""


class Prometheus(Struct):
    """A query to a Prometheus server, for instance for the series of grid-intensity-go."""

    url: Url
    """Address of the Prometheus server."""
    query: Annotated[str, StringConstraints(min_length=1, max_length=2048)]
    """PromQL that gives one series: the intensity now, in gCO2e/kWh unless its label `units` says lb/MWh."""
    token_secret_ref: SecretKeyRef | None = None
    """Key of the Secret that holds a bearer token."""
    ca_secret_ref: SecretKeyRef | None = None
    """Key of the Secret that holds the PEM certificates of the server's authority."""


class CarbonAwareSdk(Struct):
    """A WebApi of the Green Software Foundation's Carbon Aware SDK."""

    url: Url
    """Address of the WebApi."""
    location: Text
    """Location as that service names it, for instance `eastus`."""


class Replay(Struct):
    """Plays a past series as if it were now."""

    series_start: Time
    """The time in the series at which playing starts."""
    wall_start: Time | None = None
    """The real time at which playing starts; absent: when the reader starts."""
    speed: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Seconds of the series that pass in one real second."""


class File(Struct):
    """A file of rows in the reader's file system: CSV, or JSON as a list of objects."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """Path of the file; a name ending in `.gz` is decompressed. Relative paths start at the folder of resources."""
    time_column: ColumnName = "datetime_utc"
    """Column, or key of the objects, with the start of the period, RFC 3339 or UTC."""
    value_column: ColumnName
    """Column or key with the intensity in gCO2e/kWh."""
    estimated_column: ColumnName | None = None
    """Column or key that says `true` where the provider estimated the value; absent: not known."""
    replay: Replay | None = None
    """Plays the series from a chosen time; absent: the series is read at the real time."""


class ConfigMap(Struct):
    """Rows in a ConfigMap: CSV, or JSON as a list of objects."""

    namespace: Namespace | None = None
    """Namespace of the ConfigMap; absent: the operator's."""
    name: Name
    """Name of the ConfigMap."""
    key: Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key within its data or binaryData; one that ends in `.gz` is decompressed."""
    time_column: ColumnName = "datetime_utc"
    """Column, or key of the objects, with the start of the period, RFC 3339 or UTC."""
    value_column: ColumnName
    """Column or key with the intensity in gCO2e/kWh."""
    estimated_column: ColumnName | None = None
    """Column or key that says `true` where the provider estimated the value; absent: not known."""
    replay: Replay | None = None
    """Plays the series from a chosen time; absent: the series is read at the real time."""


class Static(Struct):
    """One value that never changes and is always fresh."""

    intensity_grams_per_kwh: Intensity
    """Carbon intensity in gCO2e/kWh, as a decimal string; zero is a valid, clean value."""


class Source(Struct):
    """Where the carbon intensity comes from: exactly one of the fields."""

    electricity_maps: ElectricityMaps | None = None
    """Electricity Maps; average intensity."""
    watt_time: WattTime | None = None
    """WattTime; marginal intensity of direct emissions."""
    neso: Neso | None = None
    """Great Britain's system operator; average intensity of direct emissions."""
    energy_charts: EnergyCharts | None = None
    """Energy-Charts; average intensity."""
    entsoe: Entsoe | None = None
    """ENTSO-E; average intensity of production."""
    prometheus: Prometheus | None = None
    """A Prometheus query."""
    carbon_aware_sdk: CarbonAwareSdk | None = None
    """A Carbon Aware SDK WebApi."""
    file: File | None = None
    """A file of rows."""
    config_map: ConfigMap | None = None
    """Rows in a ConfigMap."""
    static: Static | None = None
    """One constant value."""

    @rule(
        "[has(self.electricityMaps), has(self.wattTime), has(self.neso), has(self.energyCharts), has(self.entsoe), "
        "has(self.prometheus), has(self.carbonAwareSdk), has(self.file), has(self.configMap), has(self.static)]"
        ".exists_one(x, x)",
        "set exactly one of electricityMaps, wattTime, neso, energyCharts, entsoe, prometheus, carbonAwareSdk, file, "
        "configMap, static",
    )
    def _exactly_one(self) -> bool:
        return sum(getattr(self, name) is not None for name in type(self).model_fields) == 1
