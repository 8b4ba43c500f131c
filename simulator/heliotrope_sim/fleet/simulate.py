"""One run from the first arrival to the last token."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from heliotrope.engine.profiles import load
from heliotrope.errors import InvalidInputError
from heliotrope.place.assignment import NOWHERE, Outcome
from heliotrope.place.schedulers.round_robin import round_robin
from heliotrope.units import nanoseconds_from_seconds
from heliotrope_sim.engine.fixed_point import nanoseconds, seconds
from heliotrope_sim.fleet.accounts import Accounts
from heliotrope_sim.fleet.collect import Placed, collect
from heliotrope_sim.fleet.machines import Machines
from heliotrope_sim.fleet.placing import Columns, Placing
from heliotrope_sim.fleet.results import Results
from heliotrope_sim.fleet.sessions import Sessions
from heliotrope_sim.fleet.settings import Command, RunSettings
from heliotrope_sim.fleet.snapshots import Provisioner
from heliotrope_sim.fleet.topology import SchedulerSite, Site, Topology
from heliotrope_sim.fleet.view import FleetView
from heliotrope_sim.fleet.workload import Workload
from heliotrope_sim.fleet.workload import workload as workload_of_columns

Int64 = NDArray[np.int64]

DRAIN_NS = 1_000_000_000
"""After the last arrival the run goes on by this much until nothing is in flight."""
LONGEST_DRAIN_NS = 86_400_000_000_000
LONGEST_PARKED_NS = 3_600_000_000_000
"""So long somebody who sends engines to sleep has time to wake one for requests that wait at its site."""


class _Event(IntEnum):
    """What happens; of what happens at the same instant, the first of these first."""

    INTERVAL = 0
    READ = 1
    COMMAND = 2
    CONTROL = 3
    POLL = 4
    CLOSE = 5
    DECIDE = 6
    ARRIVE = 7


def simulate(topology: Topology, workload: Workload, settings: RunSettings) -> Results:
    """Run a workload through a topology. Equal inputs give equal results, whatever the machine.

    Raises:
        InvalidInputError: if a request arrives at a scheduler that does not exist, or a command or picker names an
            engine that does not.
    """
    return _Run(topology, workload, settings).results()


def compile_kernel() -> None:
    """Compile what runs need, so that processes that are started later find the machine code."""
    site = Site("a", "z", load("llama-3.1-8b-a100-40gb"), 1, 1)
    topology = Topology((site,), (SchedulerSite("s", "z"),), np.zeros((1, 1)))
    simulate(topology, workload_of_columns([0.0], 10, 2), RunSettings(scheduler=round_robin))


class _Run:
    def __init__(self, topology: Topology, workload: Workload, settings: RunSettings) -> None:
        if int(workload.origin.max()) >= len(topology.schedulers):
            raise InvalidInputError(
                "workload.origin", f"{int(workload.origin.max())} is none of {len(topology.schedulers)} schedulers"
            )
        self._topology = topology
        self._workload = workload
        self._settings = settings
        self._machines = Machines(topology, workload, settings.picker)
        self._provisioner = Provisioner(self._machines, settings)
        self._accounts = Accounts(self._machines)
        columns = Columns(topology, workload)
        self._sessions = Sessions(workload, len(topology.sites))
        self._schedulers = [
            Placing(topology, workload, settings, s, columns, self._sessions) for s in range(len(topology.schedulers))
        ]
        zones = [scheduler.zone for scheduler in topology.schedulers]
        doors = [np.flatnonzero(np.array(zones) == site.zone) for site in topology.sites]
        self._doors = np.array([np.resize(d, len(zones)) for d in doors])
        """By site: the schedulers through which requests from other zones come, as often as need be for a full row."""
        self._door_count = np.array([len(d) for d in doors])
        self._near = np.array([[zone == site.zone for site in topology.sites] for zone in zones])
        self._one_way_ns = np.rint(nanoseconds_from_seconds(topology.rtt_seconds) / 2.0).astype(np.int64)
        self._placed = Placed.none(len(workload))
        self._undecided = len(workload)
        self._on_the_way = 0
        """Requests that were forwarded and wait for the window of another scheduler."""
        self._arrived = np.zeros(len(topology.sites), dtype=np.int64)
        self._events: list[tuple[int, int, int, int]] = []
        self._sequence = 0
        self._commands: list[Command] = []
        self._end_ns = 0

    def results(self) -> Results:
        """Everything, once."""
        self._start()
        self._run()
        return collect(self._machines, self._accounts, self._placed, self._one_way_ns, self._settings)

    def _push(self, time_ns: int, kind: _Event, argument: int = 0) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time_ns, int(kind), self._sequence, argument))

    def _start(self) -> None:
        settings = self._settings
        self._next_interval(0)
        self._push(self._accounts.LONGEST_NS, _Event.READ)
        for when, command in sorted(settings.commands, key=lambda each: each[0]):
            self._commands.append(command)
            self._push(nanoseconds(when), _Event.COMMAND, len(self._commands) - 1)
        if settings.controller is not None:
            self._push(0, _Event.CONTROL)
        if settings.scheduler is None:
            self._push(int(self._workload.arrival_ns[0]), _Event.ARRIVE, 0)
            return
        self._provisioner.poll(0, None)
        period = nanoseconds(settings.poll_seconds)
        sites = len(self._topology.sites)
        for s in range(sites) if settings.staggered_polls else (-1,):
            self._push(period * (s + 1) // sites if settings.staggered_polls else period, _Event.POLL, s)
        for s in range(len(self._schedulers)):
            self._plan_close(s)

    def _run(self) -> None:
        handlers = {
            _Event.INTERVAL: self._close_interval,
            _Event.READ: self._read,
            _Event.COMMAND: self._command,
            _Event.CONTROL: self._control,
            _Event.POLL: self._poll,
            _Event.CLOSE: self._close_window,
            _Event.DECIDE: self._decide,
            _Event.ARRIVE: self._arrive,
        }
        while self._undecided or self._on_the_way:
            now_ns, kind, _, argument = heapq.heappop(self._events)
            handlers[_Event(kind)](now_ns, argument)
        self._drain(handlers)

    def _drain(self, handlers: Mapping[_Event, Callable[[int, int], None]]) -> None:
        """No request is left to place: run on until all have ended."""
        now_ns = int(max(self._placed.sent_ns.max(), self._workload.duration_ns))
        last_ns, gives_up_ns = now_ns + LONGEST_DRAIN_NS, now_ns + LONGEST_PARKED_NS
        while True:
            now_ns = (now_ns // DRAIN_NS + 1) * DRAIN_NS
            while self._events and self._events[0][0] <= now_ns:
                time_ns, kind, _, argument = heapq.heappop(self._events)
                handlers[_Event(kind)](time_ns, argument)
            self._machines.run_until(now_ns)
            if self._machines.busy and now_ns < last_ns:
                continue
            wakes = self._settings.controller is not None or any(e[1] == _Event.COMMAND for e in self._events)
            if not (self._machines.parked and wakes and now_ns < gives_up_ns):
                break
        self._accounts.close(now_ns)
        self._end_ns = now_ns

    def _next_interval(self, now_ns: int) -> None:
        step_ns = nanoseconds(self._settings.carbon_step_seconds)
        phase_ns = nanoseconds(self._settings.start_unix_s % self._settings.carbon_step_seconds)
        end_ns = ((now_ns + phase_ns) // step_ns + 1) * step_ns - phase_ns
        if now_ns < self._workload.duration_ns:
            end_ns = min(end_ns, self._workload.duration_ns)
        self._push(end_ns, _Event.INTERVAL)

    def _close_interval(self, now_ns: int, _argument: int) -> None:
        self._machines.run_until(now_ns)
        self._accounts.close(now_ns)
        self._next_interval(now_ns)

    def _read(self, now_ns: int, _argument: int) -> None:
        self._machines.run_until(now_ns)
        self._accounts.read(now_ns)
        self._push(now_ns + self._accounts.LONGEST_NS, _Event.READ)

    def _command(self, now_ns: int, argument: int) -> None:
        self._tell([self._commands[argument]], now_ns)

    def _control(self, now_ns: int, _argument: int) -> None:
        controller = self._settings.controller
        assert controller is not None
        self._machines.run_until(now_ns)
        sites = tuple(self._machines.view(s, now_ns) for s in range(len(self._topology.sites)))
        view = FleetView(
            topology=self._topology,
            sites=sites,
            arrived_since=self._arrived.copy(),
            first_token_ns=self._machines.first_token_ns,
        )
        self._arrived[:] = 0
        self._tell(controller(seconds(now_ns), view), now_ns)
        self._push(now_ns + nanoseconds(self._settings.control_seconds), _Event.CONTROL)

    def _tell(self, commands: Sequence[Command], now_ns: int) -> None:
        self._machines.run_until(now_ns)
        self._accounts.read(now_ns)
        for command in commands:
            self._machines.command(command, now_ns)

    def _poll(self, now_ns: int, site: int) -> None:
        self._machines.run_until(now_ns)
        self._provisioner.poll(now_ns, None if site < 0 else site)
        self._push(now_ns + nanoseconds(self._settings.poll_seconds), _Event.POLL, site)

    def _arrive(self, now_ns: int, request: int) -> None:
        """The endpoint tier decides on engines as they are when the request comes."""
        picker = self._settings.picker
        assert picker is not None
        self._machines.run_until(now_ns)
        sites = [self._machines.view(s, now_ns) for s in range(len(self._topology.sites))]
        pick = picker(request, seconds(now_ns), sites)
        self._placed.closed_ns[request] = self._placed.sent_ns[request] = now_ns
        self._undecided -= 1
        if pick is not None:
            if not 0 <= pick.site < len(sites):
                raise InvalidInputError("pick.site", f"there is no site {pick.site}")
            way_ns = int(self._one_way_ns[self._workload.origin[request], pick.site])
            self._machines.place(request, pick, now_ns, now_ns + way_ns)
            self._placed.site[request] = pick.site
            self._arrived[pick.site] += 1
        if request + 1 < len(self._workload):
            self._push(int(self._workload.arrival_ns[request + 1]), _Event.ARRIVE, request + 1)

    def _plan_close(self, s: int) -> None:
        scheduler = self._schedulers[s]
        closes_ns = scheduler.windows.closes_ns()
        if closes_ns is not None and closes_ns != scheduler.close_event_ns:
            scheduler.close_event_ns = closes_ns
            self._push(closes_ns, _Event.CLOSE, s)

    def _close_window(self, now_ns: int, s: int) -> None:
        scheduler = self._schedulers[s]
        if scheduler.close_event_ns != now_ns:
            # What was forwarded meanwhile has filled the window earlier.
            return
        scheduler.close_event_ns = None
        own, forwarded = scheduler.windows.close(now_ns)
        self._placed.closed_ns[own] = now_ns
        scheduler.closed.append((now_ns, own, forwarded))
        self._push(max(now_ns, scheduler.free_ns), _Event.DECIDE, s)
        self._plan_close(s)

    def _decide(self, now_ns: int, s: int) -> None:
        scheduler = self._schedulers[s]
        if now_ns < scheduler.free_ns:
            self._push(scheduler.free_ns, _Event.DECIDE, s)
            return
        closed_ns, own, forwarded = scheduler.closed.popleft()
        decided_ns = now_ns
        if len(own):
            assignment, decided_ns = scheduler.decide(own, self._provisioner.polled, now_ns)
            places = assignment.regions
            self._placed.decisions.append(
                (
                    s,
                    closed_ns,
                    decided_ns,
                    len(own),
                    assignment.work,
                    assignment.gap,
                    assignment.outcome is Outcome.FELL_BACK,
                    assignment.carbon_counts,
                )
            )
            self._placed.site[own] = places
            self._placed.reason[own] = assignment.reasons
            self._placed.sent_ns[own] = decided_ns
            self._undecided -= len(own)
            self._sessions.sent(own, places)
            self._send(s, own[places != NOWHERE], decided_ns)
        scheduler.free_ns = decided_ns
        if len(forwarded):
            self._on_the_way -= len(forwarded)
            self._to_sites(s, forwarded, decided_ns)

    def _send(self, s: int, requests: Int64, now_ns: int) -> None:
        """Requests leave a scheduler: for a site near it, or for a scheduler near the site."""
        sites = self._placed.site[requests]
        near = self._near[s, sites] if self._settings.forwards_wait else np.ones(len(sites), dtype=np.bool_)
        self._to_sites(s, requests[near], now_ns)
        away = requests[~near]
        if not len(away):
            return
        sites = self._placed.site[away]
        doors = self._doors[sites, away % self._door_count[sites]]
        reach_ns = now_ns + self._one_way_ns[s, sites]
        self._on_the_way += len(away)
        for door in np.unique(doors):
            through = doors == door
            self._schedulers[door].windows.forward(away[through], reach_ns[through])
            self._plan_close(int(door))

    def _to_sites(self, s: int, requests: Int64, now_ns: int) -> None:
        sites = self._placed.site[requests]
        self._arrived += np.bincount(sites, minlength=len(self._arrived))
        for site in np.unique(sites):
            self._machines.plan_transfers(requests[sites == site], int(site))
        self._machines.send(requests, sites, now_ns + self._one_way_ns[s, sites])
