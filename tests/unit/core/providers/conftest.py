"""A server that speaks every API, a clock, keys, and RegionProfiles that point there."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.carbon_apis import (
    EM_TOKEN,
    ENTSOE_TOKEN,
    PROMETHEUS_TOKEN,
    WT_PASSWORD,
    WT_USER,
    CarbonApis,
    carbon_apis,
    unix,
)

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.common import SecretKeyRef
from heliotrope.errors import CredentialsMissingError
from heliotrope.providers import HistoryProvider, Provider, build
from heliotrope.providers.http import Limits, Network
from heliotrope.providers.online import Online
from heliotrope.providers.secrets import Secret, pem_of

NOW = unix("2026-03-10T10:20:00Z")

KEYS = {
    ("em", "token"): EM_TOKEN,
    ("wt", "user"): WT_USER,
    ("wt", "password"): WT_PASSWORD,
    ("entsoe", "token"): ENTSOE_TOKEN,
    ("prom", "token"): PROMETHEUS_TOKEN,
}


class Clock:
    def __init__(self) -> None:
        self.unix_s = NOW

    def __call__(self) -> float:
        return self.unix_s


class HeldSecrets:
    """Secrets in memory, which tests rotate."""

    def __init__(self) -> None:
        self.values = dict(KEYS)
        self.reads = 0

    async def read(self, ref: SecretKeyRef) -> Secret:
        self.reads += 1
        try:
            return Secret(self.values[ref.name, ref.key])
        except KeyError:
            raise CredentialsMissingError(f"there is no {ref.name}/{ref.key}") from None

    async def read_pem(self, ref: SecretKeyRef) -> str:
        return pem_of((await self.read(ref)).reveal().encode(), "ca")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def apis(clock: Clock) -> Iterator[CarbonApis]:
    with carbon_apis(clock) as running:
        yield running


@pytest.fixture
def secrets() -> HeldSecrets:
    return HeldSecrets()


@pytest.fixture
def online(secrets: HeldSecrets) -> Online:
    return Online(secrets, Network(Limits(total_s=5.0)))


def ref(name: str, key: str) -> dict[str, str]:
    return {"name": name, "key": key}


MARGINAL = {"type": "marginal", "emissionFactor": "direct"}
DIRECT = {"type": "average", "emissionFactor": "direct"}


def sources(url: str) -> dict[str, dict[str, Any]]:
    """A spec of each source, by its name."""
    return {
        "electricityMaps": {
            "source": {"electricityMaps": {"credentialsSecretRef": ref("em", "token"), "baseUrl": f"{url}/em"}}
        },
        "wattTime": {
            "source": {
                "wattTime": {
                    "usernameSecretRef": ref("wt", "user"),
                    "passwordSecretRef": ref("wt", "password"),
                    "baseUrl": f"{url}/wt",
                }
            },
            "signal": MARGINAL,
        },
        "neso": {"source": {"neso": {"baseUrl": f"{url}/neso"}}, "signal": DIRECT},
        "energyCharts": {"source": {"energyCharts": {"country": "de", "baseUrl": f"{url}/ec"}}},
        "entsoe": {
            "source": {
                "entsoe": {
                    "credentialsSecretRef": ref("entsoe", "token"),
                    "domain": "10YES-REE------0",
                    "baseUrl": f"{url}/entsoe/api",
                }
            }
        },
        "carbonAwareSdk": {"source": {"carbonAwareSdk": {"url": f"{url}/sdk", "location": "eastus"}}},
        "prometheus": {
            "source": {
                "prometheus": {
                    "url": f"{url}/prom",
                    "query": 'grid_intensity_carbon_average{location="ES"}',
                    "tokenSecretRef": ref("prom", "token"),
                }
            }
        },
    }


Make = Callable[..., Provider]


def merged(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Right over left, deeply."""
    both = dict(left)
    for key, value in right.items():
        inner = both.get(key)
        both[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


@pytest.fixture
def make(apis: CarbonApis, online: Online) -> Make:
    """Makes the provider of a named source; what is given goes over the spec."""

    def make(name: str, source: dict[str, Any] | None = None, **spec: Any) -> Provider:
        given = merged(sources(apis.url)[name], {"source": {name: source or {}}} | spec)
        resource = parse(
            {
                "apiVersion": "heliotrope.io/v1alpha1",
                "kind": "RegionProfile",
                "metadata": {"name": "spain"},
                "spec": {"zone": "ES"} | given,
            }
        )
        assert isinstance(resource, RegionProfile)
        return build(resource, started_unix_s=0.0, online=online)

    return make


def knows_the_past(provider: Provider) -> HistoryProvider:
    assert isinstance(provider, HistoryProvider)
    return provider
