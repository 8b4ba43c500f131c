"""What the provisioner polls from sites, and how a scheduler sees regions with it."""

from collections import deque
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from heliotrope.engine.coefficients import coefficients
from heliotrope.place.dispatches import DUTY_SECONDS
from heliotrope.place.regions import Regions
from heliotrope.units import nanoseconds_from_seconds
from heliotrope_sim.engine.fixed_point import seconds
from heliotrope_sim.fleet import layout
from heliotrope_sim.fleet.machines import Machines
from heliotrope_sim.fleet.reading import is_ready, prefilled_ns
from heliotrope_sim.fleet.settings import RunSettings
from heliotrope_sim.fleet.topology import Topology

Float64 = NDArray[np.float64]
LARGEST_DUTY = 0.99


@dataclass(slots=True)
class Polled:
    """Columns over sites, each as of its last poll; means over a site's engines."""

    polled_ns: NDArray[np.int64]
    engines: Float64
    running: Float64
    waiting: Float64
    waiting_tokens: Float64
    kv_tokens: Float64
    prefill_duty: Float64
    idle_engines: Float64
    intensity: Float64


class Provisioner:
    """Polls sites and remembers what they said."""

    def __init__(self, machines: Machines, settings: RunSettings) -> None:
        self._machines = machines
        self._settings = settings
        self._sites = machines.topology.sites
        self._starts = machines.fleet.sites[:, layout.FIRST_ENGINE]
        self._ends = machines.fleet.sites[:, layout.END_ENGINE]
        d = len(self._sites)
        columns = {name: np.zeros(d) for name in Polled.__slots__ if name != "polled_ns"}
        self.polled = Polled(polled_ns=np.zeros(d, dtype=np.int64), **columns)
        self._duty_ns = round(nanoseconds_from_seconds(DUTY_SECONDS))
        none = np.zeros(1, dtype=np.int64)
        self._prefilled: list[deque[tuple[int, NDArray[np.int64]]]] = [deque([(0, none)]) for _ in range(d)]
        """By first site of a poll: its times and what each engine had prefilled then, over the recent time of duty."""

    def poll(self, now_ns: int, site: int | None) -> None:
        """Ask one site or all; engines have run up to now."""
        sites = slice(None) if site is None else slice(site, site + 1)
        self._poll(now_ns, sites)
        for s in range(len(self._sites))[sites]:
            series = self._sites[s].carbon
            point = None if series is None else series.at(self._settings.start_unix_s + seconds(now_ns))
            self.polled.intensity[s] = nan if point is None else point.intensity_g_per_kwh

    def _poll(self, now_ns: int, sites: slice) -> None:
        polled = self.polled
        starts = self._starts[sites]
        first, end = int(starts[0]), int(self._ends[sites][-1])
        table = self._machines.fleet.engines[first:end]
        offsets = starts - first

        def mean(values: NDArray[np.int64] | Float64, mask: NDArray[np.bool_]) -> Float64:
            """By site, over the engines of a mask; 0 where there is none."""
            count = np.add.reduceat(mask, offsets, dtype=np.int64)
            return np.add.reduceat(np.where(mask, values, 0.0), offsets) / np.maximum(count, 1)

        up = (table[:, layout.TAKES] == 1) & is_ready(table, now_ns)
        decodes = up & (table[:, layout.ROLE] != layout.PREFILLS)
        prefills = up & (table[:, layout.ROLE] != layout.DECODES_ONLY)
        in_batch = table[:, layout.BATCH] + table[:, layout.PREFILL_COUNT]
        idle = decodes & (in_batch + table[:, layout.WAIT_COUNT] == 0)
        polled.polled_ns[sites] = now_ns
        polled.engines[sites] = np.add.reduceat(decodes, offsets, dtype=np.int64)
        polled.running[sites] = mean(in_batch, decodes)
        polled.waiting[sites] = mean(table[:, layout.WAIT_COUNT], prefills)
        polled.waiting_tokens[sites] = mean(table[:, layout.WAIT_TOKENS] + table[:, layout.PREFILL_LEFT], prefills)
        polled.kv_tokens[sites] = mean(table[:, layout.KV_TOKENS] + table[:, layout.PREFILL_DONE], decodes)
        polled.prefill_duty[sites] = np.minimum(mean(self._duty(now_ns, sites, first, end), decodes), LARGEST_DUTY)
        polled.idle_engines[sites] = np.add.reduceat(idle, offsets, dtype=np.int64)

    def _duty(self, now_ns: int, sites: slice, first: int, end: int) -> Float64:
        """Share of the recent time that each of some sites' engines spent in prefill."""
        prefilled = prefilled_ns(self._machines.fleet.engines[first:end], now_ns)
        history = self._prefilled[sites.start or 0]
        while len(history) > 1 and history[1][0] <= now_ns - self._duty_ns:
            history.popleft()
        duty: Float64 = (prefilled - history[0][1]) / max(now_ns - history[0][0], 1)
        if now_ns > 0:  # at the start everybody is asked at once, whoever is asked alone later
            history.append((now_ns, prefilled))
        return duty


class Sight:
    """How one scheduler sees the regions."""

    def __init__(self, topology: Topology, scheduler: int, settings: RunSettings) -> None:
        sites = topology.sites
        zone = topology.schedulers[scheduler].zone
        self._names = tuple(site.name for site in sites)
        self._rows = np.array([coefficients(site.model) for site in sites])
        self._capacity = np.array([float(site.capacity) for site in sites])
        self._pue = np.array([site.pue for site in sites])
        self._rtt = topology.rtt_seconds[scheduler].copy()
        away = settings.window_seconds / 2.0 + settings.decision_time.base_seconds if settings.forwards_wait else 0.0
        self._dispatch = np.array([0.0 if site.zone == zone else away for site in sites])
        self._whole = np.ones(len(sites))
        self._unknown = np.full(len(sites), nan)

    def regions(self, polled: Polled, now_ns: int) -> Regions:
        """As of the last polls; columns are copies."""
        return Regions(
            names=self._names,
            engine_rows=self._rows,
            engines=polled.engines.copy(),
            batch_capacity=self._capacity,
            running=polled.running.copy(),
            waiting=polled.waiting.copy(),
            waiting_tokens=polled.waiting_tokens.copy(),
            kv_tokens=polled.kv_tokens.copy(),
            prefill_duty=polled.prefill_duty.copy(),
            idle_engines=polled.idle_engines.copy(),
            intensity_g_per_kwh=polled.intensity.copy(),
            pue=self._pue,
            rtt_seconds=self._rtt,
            dispatch_seconds=self._dispatch,
            age_seconds=seconds(now_ns - polled.polled_ns),  # type: ignore[arg-type]
            largest_share=self._whole,
            recent_share=self._unknown,
        )
