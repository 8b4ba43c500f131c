"""Endpoints, grids and what they cost: §8.1's testbed of two accelerator classes and 8-16 endpoints, simulated.

Four regions with one A100 and one H100 endpoint of the 8B model each; where models are routed, two more endpoints serve
the 70B model. Clients are near one of the regions. Step times and energies are the shipped profiles'; PUE, WUE, rents
and embodied carbon are assumptions of the order of published ones, and are the same for every arm.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from heliotrope.carbon.footprint import Embodied
from heliotrope.engine.model import EngineModel
from heliotrope.engine.profiles import load
from heliotrope_sim.data import data_file
from heliotrope_sim.fleet.network import aws_rtt_seconds

CARBON_FILES = {
    "NO": ("carbon/NO.csv", "ci_lifecycle"),
    "ES": ("carbon/ES.csv", "ci_lifecycle"),
    "GB": ("electricitymaps-umass/ci_lifecycle_2022_hourly_4zones.csv", "GB"),
    "US-CAL-CISO": ("carbon/US-CAL-CISO.csv", "ci_lifecycle"),
}
"""By zone, file and column: the hours of 2022, gCO2e/kWh."""
CLIENTS = "eu-west-2"
"""Where requests come from."""
LIFETIME_SECONDS = 4.0 * 365.0 * 86_400.0
MODEL_8B, MODEL_70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"


@dataclass(frozen=True, slots=True)
class Region:
    """One data centre."""

    name: str
    zone: str
    """Of its grid."""
    aws: str
    """The cloud region whose round trips hold for it."""
    pue: float
    wue_l_per_kwh: float


REGIONS = (
    Region("norway", "NO", "eu-north-1", 1.10, 0.2),
    Region("london", "GB", "eu-west-2", 1.20, 0.6),
    Region("spain", "ES", "eu-south-2", 1.20, 1.8),
    Region("california", "US-CAL-CISO", "us-west-1", 1.15, 1.5),
)


@dataclass(frozen=True, slots=True)
class Hardware:
    """What one replica costs."""

    profile: str
    price_per_hour: float
    """In dollars, all accelerators and the host's share."""
    embodied: Embodied


A100 = Hardware("llama-3.1-8b-a100-40gb", 1.5, Embodied(150e3, LIFETIME_SECONDS))
H100 = Hardware("llama-3.1-8b-h100", 3.0, Embodied(200e3, LIFETIME_SECONDS))
A100_TP4 = Hardware("llama-3.1-70b-a100-80gb-tp4", 7.0, Embodied(600e3, LIFETIME_SECONDS))
H100_TP4 = Hardware("llama-3.1-70b-h100-tp4", 12.0, Embodied(800e3, LIFETIME_SECONDS))


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """One serving endpoint."""

    name: str
    region: Region
    hardware: Hardware
    model: EngineModel


@cache
def endpoints(large: bool = False, kv_capacity_tokens: int | None = None) -> tuple[EndpointSpec, ...]:
    """The testbed.

    Args:
        large: whether two endpoints serve the 70B model as well.
        kv_capacity_tokens: at most so much KV memory of each: what a busier or smaller accelerator leaves to reuse.
    """
    specs = [(region, hardware) for region in REGIONS for hardware in (A100, H100)]
    if large:
        specs += [(REGIONS[0], A100_TP4), (REGIONS[1], H100_TP4), (REGIONS[2], H100_TP4), (REGIONS[3], A100_TP4)]
    found = []
    for region, hardware in specs:
        model = load(hardware.profile)
        if kv_capacity_tokens is not None:
            model = replace(model, kv_capacity_tokens=min(model.kv_capacity_tokens, kv_capacity_tokens))
        found.append(
            EndpointSpec(f"{region.name}/{hardware.profile.removeprefix('llama-3.1-')}", region, hardware, model)
        )
    return tuple(found)


def rtt_seconds() -> Mapping[str, float]:
    """Median round trips from the clients, by region."""
    row = aws_rtt_seconds([CLIENTS], [region.aws for region in REGIONS])[0]
    return {region.name: float(rtt) for region, rtt in zip(REGIONS, row, strict=True)}


@cache
def intensities() -> NDArray[np.float64]:
    """Shape (hours of 2022 that all regions have, regions), gCO2e/kWh, lifecycle, average."""
    columns = []
    for region in REGIONS:
        name, column = CARBON_FILES[region.zone]
        with data_file(name).open(encoding="utf-8", newline="") as file:
            columns.append({row["datetime_utc"]: float(row[column]) for row in csv.DictReader(file)})
    hours = [hour for hour in columns[0] if all(hour in column for column in columns)]
    return np.array([[column[hour] for column in columns] for hour in hours])


def saturated_rate(
    specs: tuple[EndpointSpec, ...], prompt_tokens: float, output_tokens: float, batch: int = 32
) -> float:
    """Requests per second that these endpoints can serve at a batch, by their step models: load 1."""
    rate = 0.0
    for spec in specs:
        model = spec.model
        held = batch * (prompt_tokens + 0.5 * output_tokens)
        fitting = batch * min(1.0, model.kv_capacity_tokens / held)
        step = float(model.decode_seconds(fitting, fitting * (prompt_tokens + 0.5 * output_tokens)))
        rate += 1.0 / (float(model.prefill_seconds(prompt_tokens)) + output_tokens * step / fitting)
    return rate
