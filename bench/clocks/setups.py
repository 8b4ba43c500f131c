"""What is studied: fleets, promises, loads, and the day that requests follow. All of it was chosen before any run."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from bench.power_split import decode_rate, prefill_rate, usual_batch
from numpy.typing import NDArray

from heliotrope.api.v1alpha1.common import LabelSelector, Role
from heliotrope.api.v1alpha1.workloadvariant import Accelerator, ClockRange, EnergyPoint, Phase, WorkloadVariantSpec
from heliotrope.engine.model import EngineModel
from heliotrope.engine.profiles import load
from heliotrope.power.latency import Promise
from heliotrope.power.options import Work
from heliotrope_sim.data import data_file
from heliotrope_sim.fleet.arrivals import AZURE_FILES
from heliotrope_sim.fleet.diurnal import casper
from heliotrope_sim.fleet.topology import Dispatch, PrefillDecode, SchedulerSite, Site, Topology
from heliotrope_sim.fleet.workload import RequestClass, Workload, workload
from heliotrope_sim.workload.trace import load_azure

MEASURED_CLOCKS = 7
"""Of an energy profile, per phase, as a calibration would write it."""
REGION = "eu-central-1"
"""Whose hours the day follows (`data/casper`)."""
HOURS = 24
FIRST_DAYS = (4, 5, 6)
"""Days of that series by seed, counted from its first midnight: Tuesday to Thursday of its first whole week."""
LINK_BYTES_PER_SECOND = 25e9
HOST_WATTS_PER_GPU = 37.5


@dataclass(frozen=True, slots=True)
class Fleet:
    """Engines of one model on one node; `prefill` of 0: all of them do both phases."""

    name: str
    profile: str
    prefill: int
    engines: int

    @property
    def model(self) -> EngineModel:
        """The engine at its highest clock."""
        return load(self.profile)

    @property
    def roles(self) -> dict[Role, range]:
        """Engines by role."""
        if not self.prefill:
            return {Role.BOTH: range(self.engines)}
        return {Role.PREFILL: range(self.prefill), Role.DECODE: range(self.prefill, self.engines)}


@dataclass(frozen=True, slots=True)
class Promised:
    """A promise with its source."""

    name: str
    promise: Promise
    source: str


FLEETS = (
    Fleet("8B on A100, 1 + 1", "llama-3.1-8b-a100-40gb", 1, 2),
    Fleet("70B on 4 H100, 1 + 1", "llama-3.1-70b-h100-tp4", 1, 2),
    Fleet("8B on A100, 2 mixed", "llama-3.1-8b-a100-40gb", 0, 2),
)
PROMISES = (
    Promised("server", Promise(2.0, 0.2), "MLPerf Inference v5.0, Llama 2 70B, server: 99 % of TTFT and TPOT"),
    Promised("interactive", Promise(0.45, 0.04), "MLPerf Inference v5.0, Llama 2 70B, interactive: likewise"),
)
LOADS = (0.4, 0.7, 0.95)
"""Requests per second at the day's peak, as a share of what the fleet carries within the server promise."""


def typical_work() -> Work:
    """The mean request of the trace."""
    rows = load_azure(data_file(AZURE_FILES["conversation"]))
    return Work(
        float(np.mean([row.prompt_tokens for row in rows])), float(np.mean([row.output_tokens for row in rows]))
    )


def capacity(fleet: Fleet, work: Work, promise: Promise) -> float:
    """Requests per second within the promise at the highest clocks, by the step model."""
    prefill, decode = (rate(fleet.model, work, promise) for rate in (prefill_rate, decode_rate))
    if fleet.prefill:
        return min(fleet.prefill * prefill, (fleet.engines - fleet.prefill) * decode)
    return fleet.engines / (1.0 / prefill + 1.0 / decode)


@lru_cache
def variant(fleet: Fleet, role: Role, work: Work, promise: Promise) -> WorkloadVariantSpec:
    """A variant with an energy profile of `MEASURED_CLOCKS` clocks per phase out of the step model."""
    engine = fleet.model
    low, high = engine.clock.max_mhz // 3, engine.clock.max_mhz
    clocks = [round(low + step * (high - low) / (MEASURED_CLOCKS - 1)) for step in range(MEASURED_CLOCKS)]
    phases = [Phase.PREFILL, Phase.DECODE] if role is Role.BOTH else [Phase(role.value)]
    batch = float(usual_batch(engine, work, promise))
    return WorkloadVariantSpec(
        model=engine.model,
        endpoint_selector=LabelSelector(match_labels={"role": role.value}),
        role=role,
        accelerator=Accelerator(type=engine.accelerator, count=engine.tensor_parallel),
        energy_profile=tuple(_point(engine.at_clock(mhz), phase, work, batch) for phase in phases for mhz in clocks),
        clock_range=ClockRange(min_mhz=low, max_mhz=high),
    )


def _point(engine: EngineModel, phase: Phase, work: Work, batch: float) -> EnergyPoint:
    if phase is Phase.PREFILL:
        tokens, seconds = work.prompt_tokens, float(engine.prefill_seconds(work.prompt_tokens))
        joules = float(engine.prefill_joules(work.prompt_tokens))
    else:
        context = batch * (work.prompt_tokens + work.output_tokens / 2.0)
        tokens, seconds = batch, float(engine.decode_seconds(batch, context))
        joules = float(engine.decode_joules(batch, context))
    return EnergyPoint(
        phase=phase,
        sm_clock_mhz=engine.clock_mhz,
        tokens_per_second=tokens / seconds,
        joules_per_token=joules / tokens,
        watts=round(joules / seconds),
    )


def topology(fleet: Fleet) -> Topology:
    """One node behind one scheduler next to it."""
    model = fleet.model
    site = Site(
        name="node",
        zone="here",
        model=model,
        nodes=1,
        engines_per_node=fleet.engines,
        dispatch=Dispatch.LEAST_LOADED,
        host_watts_per_node=HOST_WATTS_PER_GPU * model.tensor_parallel * fleet.engines,
        prefill_decode=PrefillDecode(fleet.prefill, LINK_BYTES_PER_SECOND) if fleet.prefill else None,
    )
    return Topology((site,), (SchedulerSite("gateway", "here"),), np.zeros((1, 1)))


def hourly_shape(seed: int) -> NDArray[np.float64]:
    """Requests of the hours of a day as shares of its busiest; shape (24,)."""
    rates = casper().of(REGION)
    midnight = int(-rates.start_unix_s // 3600 % HOURS)
    start = midnight + FIRST_DAYS[seed % len(FIRST_DAYS)] * HOURS
    hours = rates.per_hour[start : start + HOURS, 0]
    return np.asarray(hours / hours.max())


def day(peak_per_second: float, *, seed: int, hour_seconds: float, hours: int = HOURS) -> Workload:
    """A day of the Azure conversation trace: its requests in their order and their pattern of arrivals.

    Time is stretched so that the rate follows the hours of a real day; between their middles it is a straight line.
    The trace begins anew where it ends, and each seed begins elsewhere in it.

    Args:
        peak_per_second: in the middle of the busiest hour.
        seed: which day, and where the trace begins.
        hour_seconds: how long an hour lasts.
        hours: from midnight on.
    """
    rows = load_azure(data_file(AZURE_FILES["conversation"]))
    middles = (np.arange(-1, HOURS + 1) + 0.5) * hour_seconds
    shape = hourly_shape(seed)
    rates = peak_per_second * np.concatenate([shape[-1:], shape, shape[:1]])
    fine = np.linspace(0.0, hours * hour_seconds, hours * 60 + 1)
    expected = np.concatenate([[0.0], np.cumsum(np.interp((fine[1:] + fine[:-1]) / 2.0, middles, rates) * fine[1])])
    at = np.array([row.arrival_seconds for row in rows])
    gaps = np.append(np.diff(at), at[-1] / (len(at) - 1))
    first = 1_500 * seed % len(rows)
    order = (first + np.arange(int(expected[-1] * 1.5) + 10)) % len(rows)
    reached = np.concatenate([[0.0], np.cumsum(gaps[order] / gaps.mean())])[: len(order)]
    inside = reached < expected[-1]
    order, times = order[inside], np.interp(reached[inside], expected, fine)
    return workload(
        times,
        [max(rows[i].prompt_tokens, 1) for i in order],
        [max(rows[i].output_tokens, 1) for i in order],
        classes=(RequestClass(),),
        duration_seconds=hours * hour_seconds,
        source="day of the Azure trace",
    )
