"""The sources that are asked over the network."""

from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.errors import InvalidInputError
from heliotrope.providers.carbon_aware_sdk import CarbonAwareSdkProvider
from heliotrope.providers.electricity_maps import ElectricityMapsProvider
from heliotrope.providers.energy_charts import EnergyChartsProvider
from heliotrope.providers.entsoe import EntsoeProvider
from heliotrope.providers.http import Network
from heliotrope.providers.interface import Provider
from heliotrope.providers.neso import NesoProvider
from heliotrope.providers.prometheus import PrometheusProvider
from heliotrope.providers.secrets import Secrets
from heliotrope.providers.watt_time import Logins, WattTimeProvider


class Online:
    """What the network sources of a process share, and how each is made. Holds no connection between polls."""

    def __init__(self, secrets: Secrets, network: Network | None = None) -> None:
        """`secrets` are read at every poll, so that rotated ones count."""
        self._network = network or Network()
        self._secrets = secrets
        self._logins = Logins(self._network)

    def provider(self, spec: RegionProfileSpec) -> Provider | None:
        """The region's provider; None if its source is none of the network's.

        Raises:
            InvalidInputError: if its address is none; the path names the field.
        """
        try:
            return self._provider(spec)
        except InvalidInputError as error:
            raise InvalidInputError("spec.source", f"the address {error.problem}") from None

    def _provider(self, spec: RegionProfileSpec) -> Provider | None:
        source, network, secrets = spec.source, self._network, self._secrets
        if source.electricity_maps is not None:
            return ElectricityMapsProvider(network, secrets, spec, source.electricity_maps)
        if source.watt_time is not None:
            return WattTimeProvider(network, secrets, self._logins, spec, source.watt_time)
        if source.neso is not None:
            return NesoProvider(network, spec, source.neso)
        if source.energy_charts is not None:
            return EnergyChartsProvider(network, spec, source.energy_charts)
        if source.entsoe is not None:
            return EntsoeProvider(network, secrets, spec, source.entsoe)
        if source.prometheus is not None:
            return PrometheusProvider(network, secrets, spec, source.prometheus)
        if source.carbon_aware_sdk is not None:
            return CarbonAwareSdkProvider(network, spec, source.carbon_aware_sdk)
        return None
