"""Reads the fleet's energy counters while an arm runs, and prices what was drawn."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import aiohttp

from heliotrope.carbon.accounting import EnergyInterval, emissions
from heliotrope.carbon.series import Series
from heliotrope.units import joules_from_millijoules, joules_from_watts

SAMPLE_SECONDS = 0.5
ENERGY_METRIC = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
RUNNING_METRIC = "vllm:num_requests_running"
WAITING_METRIC = "vllm:num_requests_waiting"
LATENESS_SUM_METRIC = "heliotrope_emulator_step_lateness_seconds_sum"
STEPS_METRIC = "heliotrope_emulator_step_lateness_seconds_count"
METRICS = (ENERGY_METRIC, RUNNING_METRIC, WAITING_METRIC, LATENESS_SUM_METRIC, STEPS_METRIC)


@dataclass(frozen=True, slots=True)
class MeteredEngine:
    """An engine whose counters are read."""

    name: str
    region: str
    url: str
    host_watts: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One engine's counters at one moment; `at_s` on the event loop's clock."""

    at_s: float
    accelerator_joules: float
    running: float
    waiting: float
    lateness_seconds: float
    """Sum over all steps so far of how late the emulator was with them."""
    steps: float


@dataclass(frozen=True, slots=True)
class RegionEnergy:
    """What a region drew in an arm."""

    accelerator_joules: float
    host_joules: float
    grams_co2e: float

    @property
    def joules(self) -> float:
        """Accelerators and hosts together, idle included."""
        return self.accelerator_joules + self.host_joules


class Meter:
    """Samples every engine twice a second on one time base."""

    def __init__(self, engines: Sequence[MeteredEngine]) -> None:
        self.engines = tuple(engines)
        self.samples: dict[str, list[Sample]] = {engine.name: [] for engine in engines}

    async def run(self, start_s: float, horizon_seconds: float) -> None:
        """Sample from `start_s` for `horizon_seconds`, both ends included."""
        loop = asyncio.get_running_loop()
        async with aiohttp.ClientSession(trust_env=False, timeout=aiohttp.ClientTimeout(total=10)) as session:
            at_s = start_s
            end_s = start_s + horizon_seconds
            while True:
                await asyncio.sleep(max(at_s - loop.time(), 0.0))
                await asyncio.gather(*(self._sample(session, engine) for engine in self.engines))
                if at_s >= end_s:
                    return
                at_s = min(at_s + SAMPLE_SECONDS, end_s)

    async def _sample(self, session: aiohttp.ClientSession, engine: MeteredEngine) -> None:
        async with session.get(f"{engine.url}/metrics") as response:
            text = await response.text()
        values = sums_by_name(text, METRICS)
        self.samples[engine.name].append(
            Sample(
                at_s=asyncio.get_running_loop().time(),
                accelerator_joules=joules_from_millijoules(values[ENERGY_METRIC]),
                running=values[RUNNING_METRIC],
                waiting=values[WAITING_METRIC],
                lateness_seconds=values[LATENESS_SUM_METRIC],
                steps=values[STEPS_METRIC],
            )
        )

    def mean_lateness_seconds(self) -> float:
        """How late the emulated engines' steps were on average: what the machine adds to the model's latencies."""
        last = [samples[-1] for samples in self.samples.values() if samples]
        steps = sum(s.steps for s in last)
        return sum(s.lateness_seconds for s in last) / steps if steps else 0.0

    def mean_running(self, region: str, start_s: float, end_s: float) -> float:
        """Mean batch of a region's engines between two times of the loop's clock; NaN without a sample there."""
        rows = [self.samples[engine.name] for engine in self.engines if engine.region == region]
        running = [s.running for row in rows for s in row if start_s <= s.at_s <= end_s]
        return sum(running) / len(running) if running else float("nan")

    def by_region(
        self, intensity: Mapping[str, Series], pue: Mapping[str, float], unix_offset_s: float
    ) -> dict[str, RegionEnergy]:
        """Energy and grams per region so far.

        Args:
            intensity: each region's series on the wall clock.
            pue: each region's PUE.
            unix_offset_s: wall clock minus the loop's clock.
        """
        result = {}
        for region in dict.fromkeys(engine.region for engine in self.engines):
            members = [engine for engine in self.engines if engine.region == region]
            accelerators = [i for e in members for i in self._intervals(e, unix_offset_s, accelerators_only=True)]
            total = [i for e in members for i in self._intervals(e, unix_offset_s, accelerators_only=False)]
            priced = emissions(total, intensity[region], pue[region])
            accelerator_joules = sum(i.it_joules for i in accelerators)
            result[region] = RegionEnergy(
                accelerator_joules=accelerator_joules,
                host_joules=priced.it_joules - accelerator_joules,
                grams_co2e=priced.grams_co2e,
            )
        return result

    def series_of(self, region: str, value: Callable[[Sample], float]) -> list[tuple[float, float]]:
        """(time, sum over the region's engines) for plots."""
        rows = [self.samples[e.name] for e in self.engines if e.region == region]
        return [(row[0].at_s, sum(value(s) for s in row)) for row in zip(*rows, strict=False)]

    def _intervals(
        self, engine: MeteredEngine, unix_offset_s: float, *, accelerators_only: bool
    ) -> list[EnergyInterval]:
        intervals = []
        samples = self.samples[engine.name]
        for before, after in pairwise(samples):
            joules = after.accelerator_joules - before.accelerator_joules
            if not accelerators_only:
                joules += joules_from_watts(engine.host_watts, after.at_s - before.at_s)
            intervals.append(EnergyInterval(before.at_s + unix_offset_s, after.at_s + unix_offset_s, joules))
        return intervals


def sums_by_name(text: str, names: Sequence[str]) -> dict[str, float]:
    """Sum of all series of each metric on a Prometheus text page; 0 where there is none."""
    sums = dict.fromkeys(names, 0.0)
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name = line.partition("{")[0].partition(" ")[0]
        if name in sums:
            sums[name] += float(line.rsplit(" ", 1)[1])
    return sums
