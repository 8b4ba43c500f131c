"""One policy over one workload, turn by turn in order of dispatch, with the emulated backends.

What a turn costs, which placements are feasible and what is proposed are the product's own functions
(`heliotrope.cache.ccar`). A replay can be copied and run on from any turn: `branches` does that.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.ccar import prefill_seconds, turn_energy, within_latency
from heliotrope.units import SECONDS_PER_HOUR, grams_co2e
from heliotrope_sim.reproduce.context.backend import Backend
from heliotrope_sim.reproduce.context.intensity import intensities
from heliotrope_sim.reproduce.context.profiles import (
    DEPLOYMENTS,
    MODEL_OF,
    MODELS,
    PAIR_OF,
    POOL_OF,
    REGION_OF,
    Floats,
    profile,
)
from heliotrope_sim.reproduce.context.system import System
from heliotrope_sim.reproduce.context.transfers import best_sources
from heliotrope_sim.reproduce.context.workload import Workload, peak_sessions

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Session:
    """What a router remembers of a session between its turns."""

    previous: int = -1
    """Deployment of the last turn."""
    ended_seconds: float = float("nan")
    switches: int = 0
    turns_at_previous: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One turn at its dispatch, as every policy sees it. Columns over the 60 deployments."""

    row: int
    """Of the workload."""
    now_seconds: float
    session: Session
    feasible: Bools
    best_effort: bool
    cached_tokens: Floats
    grams_co2e: Floats
    """Estimates with the history charged that is not cached."""
    oblivious_grams: Floats
    """Estimates as if it were cached everywhere."""
    intensity_g_per_kwh: Floats
    quality_margin: Floats
    kv_use: Floats
    free_share: Floats


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy's answer."""

    deployment: int
    """-1: nothing is feasible, the turn is rejected."""
    kept: bool = False
    """The gate kept the session from the proposal."""


Policy = Callable[[Workload, View], Choice]
Watch = Callable[["Replay", View, Choice], None]


@dataclass(slots=True, eq=False)
class Log:
    """Columns over the turns of a workload; NaN and -1 where a turn was rejected."""

    deployment: NDArray[np.int16]
    grams_co2e: Floats
    joules: Floats
    recomputed_joules: Floats
    cached_tokens: Floats
    """Of the history, where the turn ran; pulled ones count."""
    pulled_tokens: Floats
    ttft_seconds: Floats
    wait_seconds: Floats
    kept: Bools
    best_effort: Bools
    cleanest: Bools
    """Whether the turn ran in the region with the lowest intensity."""

    @classmethod
    def empty(cls, turns: int) -> "Log":
        """Nothing has run."""
        a, b, c, d, e, f, g = np.full((7, turns), np.nan)
        kept, best_effort, cleanest = np.zeros((3, turns), dtype=np.bool_)
        return cls(np.full(turns, -1, dtype=np.int16), a, b, c, d, e, f, g, kept, best_effort, cleanest)


class Replay:
    """Runs a policy."""

    def __init__(self, workload: Workload, system: System, policy: Policy, watch: Watch | None = None) -> None:
        self.workload = workload
        self.system = system
        self._policy = policy
        self._watch = watch
        w, p = workload, profile()
        self._input_joules = p.input_joules[PAIR_OF]
        self._prefill = p.prefill_tokens_per_second[PAIR_OF]
        self._decode = p.decode_tokens_per_second[PAIR_OF]
        limits = np.array([float(m.context_tokens) for m in MODELS])
        best = w.quality.max(axis=1, keepdims=True)
        self._margin = w.quality / (system.quality_share * best)
        estimated = w.history_tokens + w.new_tokens + w.expected_output_tokens
        fits = estimated[:, None] <= limits
        fits[:, limits == limits.max()] = True  # workloads are cut to the longest context; an estimate may be beyond
        self._suits = (self._margin >= 1.0) & fits
        self._last = w.last.tolist()
        self._columns = tuple(
            column.tolist()
            for column in (w.session, w.new_tokens, w.history_tokens, w.output_tokens, w.expected_output_tokens)
        )
        self._arrival = w.arrival_seconds.tolist()
        first = np.flatnonzero(w.turn == 1)
        self._starts = first[np.argsort(w.arrival_seconds[first], kind="stable")].tolist()
        self._prices: dict[int, tuple[Floats, Floats, int]] = {}
        self.log = Log.empty(len(w))
        self.backend = Backend(peak_sessions(w), float(w.context_tokens.mean()), system.capacity, system.ttl_seconds)
        self._slots = float(self.backend.slots)
        self._sessions: dict[int, Session] = {}
        self._next_start = 0
        self._events: list[tuple[float, int]] = []
        self._free_at = [0.0] * (DEPLOYMENTS * self._replicas)

    @property
    def _replicas(self) -> int:
        per_replica = self.system.sessions_per_replica
        return 1 if per_replica is None else max(int(np.ceil(self.backend.slots / per_replica)), 1)

    def branch(self, log: Log) -> "Replay":
        """A copy that goes on from here on its own, watched by nobody, and writes to this log."""
        twin = object.__new__(Replay)
        twin.__dict__.update(self.__dict__)
        twin._watch, twin.log = None, log
        twin.backend = self.backend.copy()
        twin._sessions, twin._events, twin._free_at = dict(self._sessions), list(self._events), list(self._free_at)
        return twin

    def run(self, until_row: int | None = None) -> Log:
        """Go on to the end, or until a turn has been served."""
        while (row := self._pop()) is not None:
            self._serve(*row)
            if row[1] == until_row:
                break
        return self.log

    def _pop(self) -> tuple[float, int] | None:
        start = self._starts[self._next_start] if self._next_start < len(self._starts) else None
        if self._events and (start is None or self._events[0] <= (self._arrival[start], start)):
            return heapq.heappop(self._events)
        if start is None:
            return None
        self._next_start += 1
        return self._arrival[start], start

    def _serve(self, now: float, row: int) -> None:
        self.backend.advance(now)
        view, pulled = self._view(now, row)
        choice = self._policy(self.workload, view)
        if self._watch is not None:
            self._watch(self, view, choice)
        self.dispatch(view, choice, pulled)

    def dispatch(self, view: View, choice: Choice, pulled: tuple[Floats, Floats, Floats] | None = None) -> None:
        """Serve a turn as chosen.

        Args:
            view: of the turn.
            choice: where it runs.
            pulled: of each deployment, the history tokens that are pulled there first, the seconds and grams of that.
                None: nothing is pulled anywhere.
        """
        row, now, a = view.row, view.now_seconds, choice.deployment
        session, new, history, output, _ = (column[row] for column in self._columns)
        if a < 0:
            self._follow_up(row, now, now)
            return
        cached = float(view.cached_tokens[a])
        moved, moved_seconds, moved_grams = (0.0, 0.0, 0.0) if pulled is None else (float(each[a]) for each in pulled)
        price, ratios = float(self._input_joules[a]), self.system.ratios
        joules = price * (new + history - (1.0 - ratios.cached) * (cached + moved) + ratios.output * output)
        grams = float(grams_co2e(joules, 1.0, float(view.intensity_g_per_kwh[a]))) + moved_grams
        prefill = (new + history - cached - moved) / float(self._prefill[a])
        wait = self._queue(a, now + moved_seconds, prefill)
        ttft = moved_seconds + wait + prefill
        end = now + ttft + output / float(self._decode[a])
        log = self.log
        log.deployment[row], log.grams_co2e[row], log.joules[row] = a, grams, joules
        log.recomputed_joules[row] = price * (1.0 - ratios.cached) * (history - cached - moved)
        log.cached_tokens[row], log.pulled_tokens[row] = cached + moved, moved
        log.ttft_seconds[row], log.wait_seconds[row] = ttft, wait
        log.kept[row], log.best_effort[row] = choice.kept, view.best_effort
        log.cleanest[row] = int(REGION_OF[a]) == self._price(now)[2]
        before = view.session
        stayed = before.previous == a
        self._sessions[session] = Session(
            previous=a,
            ended_seconds=end,
            switches=before.switches + (before.previous >= 0 and not stayed),
            turns_at_previous=before.turns_at_previous + 1 if stayed else 1,
        )
        self.backend.serve(session, a, history + new + output, now, end, self._last[row])
        self._follow_up(row, now, end)

    def _follow_up(self, row: int, now: float, end: float) -> None:
        if not self._last[row]:
            heapq.heappush(self._events, (max(self._arrival[row + 1], end, now), row + 1))

    def _queue(self, deployment: int, ready: float, prefill: float) -> float:
        """The wait for a replica, which is then taken for the prefill."""
        if self.system.sessions_per_replica is None:
            return 0.0
        n = self._replicas
        replicas = range(deployment * n, deployment * n + n)
        best = min(replicas, key=self._free_at.__getitem__)
        wait = max(self._free_at[best] - ready, 0.0)
        self._free_at[best] = ready + wait + prefill
        return wait

    def _waits(self, now: float) -> Floats | float:
        if self.system.sessions_per_replica is None:
            return 0.0
        earliest = np.array(self._free_at).reshape(DEPLOYMENTS, -1).min(axis=1)
        waits: Floats = np.maximum(earliest - now, 0.0)
        return waits

    def _price(self, now: float) -> tuple[Floats, Floats, int]:
        """Grams of an input token and intensity at every deployment, and the cleanest region."""
        series = intensities()
        hour = (self.workload.first_hour + int(now // SECONDS_PER_HOUR)) % len(series)
        found = self._prices.get(hour)
        if found is None:
            column = series[hour][REGION_OF]
            found = grams_co2e(self._input_joules, np.ones(DEPLOYMENTS), column), column, int(series[hour].argmin())
            self._prices[hour] = found
        return found

    def _view(self, now: float, row: int) -> tuple[View, tuple[Floats, Floats, Floats] | None]:
        session, new, history, _, expected = (column[row] for column in self._columns)
        backend, system = self.backend, self.system
        owners = backend.cached(session, now)
        cached = np.zeros(DEPLOYMENTS)
        for deployment, tokens in owners:
            cached[deployment] = min(tokens, history)
        held = np.array(backend.held)
        open_ = held < backend.slots
        own = backend.place.get(session)
        if own is not None:
            open_[own] = True
        price, intensity, _ = self._price(now)
        ttft = prefill_seconds(self._prefill, new, history, cached) + self._waits(now)
        grams = turn_energy(price, new, history, cached, expected, system.ratios)
        pulled = None
        if system.transfers is not None and owners:
            pulled = best_sources(system, owners, cached, history, ttft, price, intensity, 1.0 / self._prefill)
            ttft = ttft + pulled[1] - pulled[0] / self._prefill
            grams = grams - price * (1.0 - system.ratios.cached) * pulled[0] + pulled[2]
        allowed = self._suits[row][MODEL_OF] & open_[POOL_OF]
        feasible, best_effort = within_latency(allowed, ttft, system.ttft_bound_seconds)
        view = View(
            row=row,
            now_seconds=now,
            session=self._sessions.get(session, _NEW),
            feasible=feasible,
            best_effort=best_effort,
            cached_tokens=cached,
            grams_co2e=grams,
            oblivious_grams=price * (new + system.ratios.cached * history + system.ratios.output * expected),
            intensity_g_per_kwh=intensity,
            quality_margin=self._margin[row],
            kv_use=np.array(backend.used) / backend.kv_tokens,
            free_share=1.0 - held / self._slots,
        )
        return view, pulled


_NEW = Session()
