"""A Prometheus query as a source: the series of grid-intensity-go, carbon-intensity-exporter, or any of the user's own.

Where the sample still has the labels of a known exporter they are checked: its unit, and whether it is of average or
marginal intensity. The time of a sample is asked for as well: the answer to an instant query bears the time of the
question, so an exporter that serves an old value would look fresh for ever.
"""

from heliotrope.api.v1alpha1.carbonsource import Prometheus
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Point
from heliotrope.carbon.signal import SignalType
from heliotrope.errors import BadAnswerError, NoDataError
from heliotrope.providers.http import Network
from heliotrope.providers.interface import Fetched
from heliotrope.providers.points import MAX_G_PER_KWH, Meaning, number
from heliotrope.providers.prometheus_api import Access, PrometheusApi, Sample
from heliotrope.providers.secrets import Secrets, bearer
from heliotrope.units import g_per_kwh_from_lb_per_mwh

SOURCE = "prometheus"
GRAMS = frozenset({"gco2e per kwh", "gco2eq per kwh", "gco2 per kwh", "gco2e/kwh", "gco2eq/kwh", "gco2/kwh", "g/kwh"})
POUNDS = frozenset({"lbco2e per mwh", "lbco2 per mwh", "lbs per mwh", "lbs_co2_per_mwh", "lb/mwh"})
"""Values of the label `units`, in lower case."""
KINDS = {
    "grid_intensity_carbon_average": SignalType.AVERAGE,
    "grid_intensity_carbon_marginal": SignalType.MARGINAL,
}
RELATIVE = "grid_intensity_carbon_relative"
_TRUTH = {"true": True, "false": False}


class PrometheusProvider:
    """Two queries a poll: the value, and when it was taken."""

    def __init__(self, network: Network, secrets: Secrets, spec: RegionProfileSpec, source: Prometheus) -> None:
        """A query's provider.

        Raises:
            InvalidInputError: if the address is none.
        """
        self._secrets = secrets
        self._source = source
        self._meaning = Meaning.of(SOURCE, spec)
        self._api = PrometheusApi(network, source.url, self._access, source=SOURCE)

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The value of the query.

        Raises:
            SignalUnavailableError: by its subclasses; see `heliotrope.errors`.
        """
        sample = self._only((await self._api.query(self._source.query)).samples)
        if sample.value is None:
            raise NoDataError(f"{SOURCE}: the query gives what is no number; is its exporter without a value?")
        taken_unix_s = await self._taken(sample)
        current = Point(taken_unix_s, self._intensity(sample, sample.value), _TRUTH.get(_label(sample, "is_estimated")))
        return self._meaning.fetched([], now_unix_s, current=current)

    async def _taken(self, sample: Sample) -> float:
        """When the sample was taken; of what is computed from several, and of scalars, the time of the question."""
        try:
            answers = (await self._api.query(f"timestamp({self._source.query})")).samples
        except BadAnswerError:
            return sample.time_unix_s
        times = [each.value for each in answers if each.value is not None]
        return times[0] if len(times) == 1 else sample.time_unix_s

    def _only(self, samples: tuple[Sample, ...]) -> Sample:
        if not samples:
            raise NoDataError(f"{SOURCE}: the query gives nothing; check its metric and labels in Prometheus")
        if len(samples) > 1:
            raise BadAnswerError(
                f"{SOURCE}: the query gives {len(samples)} series, but a region has one value; select one by its labels"
            )
        return samples[0]

    def _intensity(self, sample: Sample, value: float) -> float:
        name, units = _label(sample, "__name__"), _label(sample, "units")
        wanted = self._meaning.kind.signal_type
        if name == RELATIVE or "percent" in units:
            raise BadAnswerError(f"{SOURCE}: the query gives a percentile, which says nothing of grams")
        if KINDS.get(name, wanted) is not wanted:
            raise BadAnswerError(
                f"{SOURCE}: {name} is {KINDS[name].value} intensity, which is never mixed with spec.signal.type "
                f"{wanted.value}; set the type, or query the other series"
            )
        if units in POUNDS:
            most = MAX_G_PER_KWH / g_per_kwh_from_lb_per_mwh(1.0)
            return g_per_kwh_from_lb_per_mwh(number(value, f"{SOURCE}: the value", most))
        if units and units not in GRAMS:
            raise BadAnswerError(f"{SOURCE}: the label units is {units[:64]!r}, which is not known to be g/kWh")
        return number(value, f"{SOURCE}: the value")

    async def _access(self) -> Access:
        token, authority = self._source.token_secret_ref, self._source.ca_secret_ref
        return Access(
            authorization=None if token is None else bearer(await self._secrets.read(token)),
            ca_pem=None if authority is None else await self._secrets.read_pem(authority),
        )


def _label(sample: Sample, name: str) -> str:
    """In lower case; empty where there is none."""
    return sample.labels.get(name, "").strip().lower()
