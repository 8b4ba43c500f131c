"""All engines of a run: requests sent to sites reach them in the order of time, and everybody runs up to an instant."""

import heapq
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError
from heliotrope.units import nanoseconds_from_seconds
from heliotrope_sim.engine.fixed_point import picojoules, seconds
from heliotrope_sim.fleet import layout
from heliotrope_sim.fleet.commands import set_clock, set_depth
from heliotrope_sim.fleet.delivery import READINGS, deliver, read_energy, run_role, run_together, submit
from heliotrope_sim.fleet.layout import Fleet
from heliotrope_sim.fleet.reading import site_engines
from heliotrope_sim.fleet.results import Ending
from heliotrope_sim.fleet.settings import Command, Depth, Pick, Picker
from heliotrope_sim.fleet.state import Rows, build
from heliotrope_sim.fleet.topology import PrefillDecode, Topology
from heliotrope_sim.fleet.view import SiteEngines
from heliotrope_sim.fleet.workload import Workload

Int64 = NDArray[np.int64]
ENERGY_LINES = 4
"""Of engines: prefill, decode, idle, asleep."""
TRANSFER_GRID_NS = 1_000_000
"""Transfers between engines that a picker chose end on multiples of this."""


class Machines:
    """State and what is on its way to it. Instants never go back."""

    def __init__(self, topology: Topology, workload: Workload, picker: Picker | None = None) -> None:
        """Where there is a picker it decides at which engine of its site a request ends up, whoever sent it."""
        self.topology = topology
        self.workload = workload
        self._rows = Rows()
        self._split = [i for i, site in enumerate(topology.sites) if site.prefill_decode is not None]
        if picker is not None and self._split:
            raise InvalidInputError("sites.prefill_decode", "a picker chooses itself where a request is prefilled")
        self.fleet: Fleet = build(topology, workload, self._rows, split=picker is not None or bool(self._split))
        self._n = len(workload)
        self._sent: list[tuple[Int64, Int64, Int64]] = []
        self._picker = picker
        self._now_ns = 0
        self._apart: dict[int, int] = {}
        """Requests that are prefilled elsewhere: the engine that decodes."""
        self._later: list[tuple[int, int, int]] = []
        """A heap of what reaches an engine later: (when, row, engine)."""
        room = len(self.fleet.requests)
        self._ended = np.zeros(room if room > self._n else 1, dtype=np.int64)
        self._pending: dict[int, Int64] = {s: np.zeros(0, dtype=np.int64) for s in self._split}
        self._parked: dict[int, list[int]] = {s: [] for s in range(len(topology.sites))}
        self.transfer_picojoules = np.zeros(self._n if room > self._n else 0, dtype=np.int64)
        engines = len(self.fleet.engines)
        self._joules = np.zeros((engines, ENERGY_LINES), dtype=np.int64)
        self._picojoules = np.zeros((engines, READINGS), dtype=np.int64)
        self._prepare_transfers()

    def bounds(self, site: int) -> tuple[int, int]:
        """A site's first engine, and the one after its last."""
        row = self.fleet.sites[site]
        return int(row[layout.FIRST_ENGINE]), int(row[layout.END_ENGINE])

    def send(self, requests: Int64, sites: Int64, reach_ns: Int64) -> None:
        """Requests are on their way to sites and reach them at those times."""
        if len(requests):
            self._sent.append((requests, sites, reach_ns))

    def run_until(self, until_ns: int) -> None:
        """Everything that happens at engines before an instant."""
        requests, sites, times = self._due(until_ns)
        if self._picker is not None:
            order = np.argsort(times, kind="stable")
            for request, site, now_ns in zip(*(c[order].tolist() for c in (requests, sites, times)), strict=True):
                self._run_picked(now_ns)
                self._pick_within(self._picker, request, site, now_ns)
            self._run_picked(until_ns)
            return
        for site in np.unique(sites):
            if not self._takes(int(site)):
                here = sites == site
                self._parked[int(site)] += requests[here].tolist()
                requests, sites, times = requests[~here], sites[~here], times[~here]
        starts = np.searchsorted(sites, np.arange(len(self.topology.sites) + 1))
        run_together(self.fleet, starts, requests, times, until_ns, self._ended)
        for site in self._split:
            rows = slice(starts[site], starts[site + 1])
            self._run_split(site, requests[rows], times[rows], until_ns)

    @property
    def busy(self) -> bool:
        """Whether anything is in flight that engines can go on with, or is on its way to them."""
        table = self.fleet.engines
        in_flight = table[:, (layout.WAIT_COUNT, layout.PREFILL_COUNT, layout.BATCH)].any()
        on_the_way = bool(self._sent) or bool(self._later) or any(len(rows) for rows in self._pending.values())
        return bool(in_flight) or on_the_way

    @property
    def parked(self) -> list[int]:
        """Requests at sites of which no engine takes any."""
        return [request for requests in self._parked.values() for request in requests]

    def read_energy(self, until_ns: int) -> tuple[list[list[int]], Int64, Int64]:
        """What each site's engines drew since the last reading and up to an instant that `run_until` has reached.

        Returns:
            Picojoules by site and line (prefill, decode, idle, asleep); awake ns by site; busy ns by site.
        """
        self._joules[:] = 0
        self._picojoules[:] = 0
        read_energy(self.fleet, until_ns, self._joules, self._picojoules)
        first = self.fleet.sites[:, layout.FIRST_ENGINE]
        whole = np.add.reduceat(self._joules, first, axis=0)
        rest = np.add.reduceat(self._picojoules, first, axis=0)
        scale = picojoules(1.0)
        drawn = [[int(whole[s, k]) * scale + int(rest[s, k]) for k in range(ENERGY_LINES)] for s in range(len(first))]
        return drawn, rest[:, 4], rest[:, 5]

    def command(self, command: Command, now_ns: int) -> None:
        """Tell engines to sleep, wake or change clock, at an instant that `run_until` has reached.

        Raises:
            InvalidInputError: if there is no such site or engine.
        """
        if not 0 <= command.site < len(self.topology.sites):
            raise InvalidInputError("command.site", f"there is no site {command.site}")
        first, end = self.bounds(command.site)
        site = self.topology.sites[command.site]
        for engine in command.engines:
            if not 0 <= engine < end - first:
                raise InvalidInputError("command.engines", f"{site.name} has {end - first} engines, none is {engine}")
            if command.clock_mhz is not None:
                self.fleet = set_clock(self.fleet, self._rows, first + engine, site, command.clock_mhz)
            if command.depth is not None:
                set_depth(self.fleet, first + engine, site, command.depth, now_ns)
        if self._parked[command.site] and self._takes(command.site):
            rows = np.array(self._parked[command.site], dtype=np.int64)
            self._parked[command.site] = []
            self.send(rows, np.full(len(rows), command.site), np.full(len(rows), now_ns))

    def node_ns(self, site: int, start_ns: int, end_ns: int) -> int:
        """Time that a site's nodes were on between two instants, of all nodes together, if none was woken between.

        A node is off from when the last of its engines has gone to `Depth.NODE_OFF`.
        """
        first, end = self.bounds(site)
        shape = (self.topology.sites[site].nodes, self.topology.sites[site].engines_per_node)
        table = self.fleet.engines[first:end]
        off = (table[:, layout.DEPTH] == Depth.NODE_OFF) & (table[:, layout.STATE] == layout.ASLEEP)
        since = np.where(off, table[:, layout.SLEPT], end_ns).reshape(shape).max(axis=1)
        return int((np.clip(since, start_ns, end_ns) - start_ns).sum())

    def view(self, site: int, now_ns: int) -> SiteEngines:
        """A site's engines at the instant that they have run up to; columns are copies."""
        return site_engines(self.fleet, self.topology.sites[site], self.bounds(site), now_ns)

    def first_token_ns(self, start: int, end: int) -> Int64:
        """When requests of the workload had their first token, those from `start` to before `end`; -1: not yet."""
        return self.fleet.requests[start:end, layout.FIRST_TOKEN].copy()

    def _due(self, until_ns: int) -> tuple[Int64, Int64, Int64]:
        """What reaches a site before an instant: (requests, sites, times) by site, then time, then order of sending."""
        if not self._sent:
            none = np.zeros(0, dtype=np.int64)
            return none, none, none
        requests, sites, times = (np.concatenate(column) for column in zip(*self._sent, strict=True))
        due = times < until_ns
        self._sent = [] if due.all() else [(requests[~due], sites[~due], times[~due])]
        requests, sites, times = requests[due], sites[due], times[due]
        order = np.lexsort((times, sites))
        return requests[order], sites[order], times[order]

    def _run_split(self, site: int, requests: Int64, times: Int64, until_ns: int) -> None:
        """A site with prefill and decode apart: what has been prefilled reaches decode engines when it is transferred.

        Decode engines never hold prefill engines up, so these run first. Row n + r is the prefill of request r.
        """
        fleet, ended, table = self.fleet, self._ended, self.fleet.requests
        count = deliver(fleet, site, layout.PREFILLS, requests + self._n, times, ended, 0)
        count = run_role(fleet, site, layout.PREFILLS, until_ns, ended, count)
        pending = np.concatenate([self._pending[site], ended[:count]])
        pending = pending[np.argsort(table[pending, layout.HELD_UNTIL], kind="stable")]
        moves_ns = table[pending, layout.HELD_UNTIL]
        moved = int(np.searchsorted(moves_ns, until_ns))
        self._pending[site] = pending[moved:]
        deliver(fleet, site, layout.DECODES_ONLY, pending[:moved] - self._n, moves_ns[:moved], ended, 0)
        run_role(fleet, site, layout.DECODES_ONLY, until_ns, ended, 0)

    def place(self, request: int, pick: Pick, now_ns: int, reach_ns: int) -> None:
        """A request goes to an engine that somebody picked, and gets there later; all have run up to now.

        Raises:
            InvalidInputError: if there is no such engine.
        """
        engine = self._global(pick.site, pick.engine)
        table, prompt = self.fleet.requests, int(self.workload.prompt_tokens[request])
        transfer_ns = round(nanoseconds_from_seconds(pick.transfer_seconds))
        self.transfer_picojoules[request] = picojoules(pick.transfer_joules)
        row, first = request, engine
        if pick.prefill is not None:
            row, first = self._n + request, self._global(*pick.prefill)
            table[row, layout.HOLD_NS] = transfer_ns
            table[request, layout.LOADED] = prompt
            self._apart[request] = engine
        elif pick.fetched_tokens > 0:
            table[request, layout.LOADED] = min(pick.fetched_tokens, prompt)
            reach_ns = _on_grid(reach_ns + transfer_ns)
        if reach_ns > now_ns:
            heapq.heappush(self._later, (reach_ns, row, first))
        else:
            self._submit(first, row, now_ns)

    def _pick_within(self, picker: Picker, request: int, site: int, now_ns: int) -> None:
        """The endpoint tier of a site decides: no engine elsewhere takes this request."""
        views = [self.view(s, now_ns) for s in range(len(self.topology.sites))]
        nobody = [replace(v, takes_requests=np.zeros_like(v.takes_requests)) for v in views]
        pick = picker(request, seconds(now_ns), [*nobody[:site], views[site], *nobody[site + 1 :]])
        if pick is None:
            self.fleet.requests[request, layout.ENDING] = Ending.NOWHERE
            return
        if pick.site != site:
            raise InvalidInputError("pick.site", f"the request was sent to site {site}, not {pick.site}")
        self.place(request, pick, now_ns, now_ns)

    def _run_picked(self, until_ns: int) -> None:
        """From one transfer's end to the next; while something is prefilled elsewhere, from grid point to grid point.

        A prefill that ends before a grid point is known there, and its transfer ends there or later.
        """
        while True:
            following = until_ns
            if self._apart:
                following = min(following, _on_grid(self._now_ns + 1))
            if self._later:
                following = min(following, self._later[0][0])
            count = 0
            for site in range(len(self.topology.sites)):
                count = run_role(self.fleet, site, layout.BOTH, following, self._ended, count)
            self._now_ns = following
            for row in self._ended[:count].tolist():
                moved_ns = _on_grid(int(self.fleet.requests[row, layout.HELD_UNTIL]) + 1)
                heapq.heappush(self._later, (moved_ns, row - self._n, self._apart.pop(row - self._n)))
            while self._later and self._later[0][0] <= following:
                when_ns, row, engine = heapq.heappop(self._later)
                self._submit(engine, row, when_ns)
            if following == until_ns:
                return

    def _submit(self, engine: int, row: int, now_ns: int) -> None:
        submit(self.fleet, engine, row, now_ns)
        if row >= self._n and self.fleet.requests[row, layout.ENDING]:
            # Refused there, so nothing of it goes on elsewhere.
            self._apart.pop(row - self._n)

    def _global(self, site: int, engine: int) -> int:
        if not 0 <= site < len(self.topology.sites):
            raise InvalidInputError("pick.site", f"there is no site {site}")
        first, end = self.bounds(site)
        if not 0 <= engine < end - first:
            name = self.topology.sites[site].name
            raise InvalidInputError("pick.engine", f"{name} has {end - first} engines, none is {engine}")
        return first + engine

    def _takes(self, site: int) -> bool:
        first, end = self.bounds(site)
        table = self.fleet.engines[first:end]
        role = layout.PREFILLS if self.topology.sites[site].prefill_decode is not None else layout.BOTH
        return bool((table[:, layout.TAKES] & (table[:, layout.ROLE] == role)).any())

    def _prepare_transfers(self) -> None:
        """How long the KV of each request takes from a prefill to a decode engine, once it is known where it goes."""
        self._links: dict[int, PrefillDecode] = {
            s: link for s in self._split if (link := self.topology.sites[s].prefill_decode) is not None
        }

    def plan_transfers(self, requests: Int64, site: int) -> None:
        """Write into requests what moving their KV inside a site takes and draws; nothing where nothing moves."""
        link = self._links.get(site)
        if link is None:
            return
        kv_bytes = self.workload.prompt_tokens[requests].astype(np.float64)
        kv_bytes *= self.topology.sites[site].model.kv_bytes_per_token
        seconds = link.link_latency_seconds + kv_bytes / link.link_bytes_per_second
        table = self.fleet.requests
        table[self._n + requests, layout.HOLD_NS] = np.rint(nanoseconds_from_seconds(seconds)).astype(np.int64)
        table[requests, layout.LOADED] = self.workload.prompt_tokens[requests]
        per_byte = picojoules(link.link_joules_per_byte)
        self.transfer_picojoules[requests] = np.rint(kv_bytes * per_byte).astype(np.int64)


def _on_grid(ns: int) -> int:
    """The next whole millisecond, or this one."""
    return -(-ns // TRANSFER_GRID_NS) * TRANSFER_GRID_NS
