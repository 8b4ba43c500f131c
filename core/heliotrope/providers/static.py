"""One value that never changes and is always fresh."""

from heliotrope.api.v1alpha1.carbonsource import Static
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.signal import EmissionFactor, Reading, SignalType
from heliotrope.providers.interface import Fetched


class StaticProvider:
    """Gives the value of the RegionProfile as measured at the moment of asking."""

    def __init__(self, spec: RegionProfileSpec, source: Static) -> None:
        self._spec = spec
        self._source = source

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The value, as of now."""
        return Fetched(self.reading(now_unix_s))

    def reading(self, now_unix_s: float) -> Reading:
        """The value, as of now, without waiting."""
        return Reading(
            intensity_g_per_kwh=self._source.intensity_grams_per_kwh,
            measured_unix_s=now_unix_s,
            source="static",
            signal_type=SignalType(self._spec.signal.type.value),
            emission_factor=EmissionFactor(self._spec.signal.emission_factor.value),
            estimated=None,
        )
