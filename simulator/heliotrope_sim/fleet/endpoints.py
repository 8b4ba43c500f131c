"""The endpoint tier on simulated engines: `heliotrope.decide.decision.decide`, unchanged, request by request.

Every engine that takes requests is an endpoint, every site a region. `heliotrope_sim.fleet.columns` has what is known.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.action import KvAction
from heliotrope.cache.links import Links, Place
from heliotrope.cache.plans import KvPool, kv_pool
from heliotrope.carbon.signal import ABSENT, CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.decide.candidates import Candidates, RegionView
from heliotrope.decide.decision import Decision, decide
from heliotrope.decide.phases import PairPool, pair_pool, with_pairs
from heliotrope.decide.plans import with_kv_plans
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.engine.coefficients import coefficients
from heliotrope.place.dispatches import DUTY_SECONDS
from heliotrope_sim.fleet.columns import endpoint_columns, hardware_rows
from heliotrope_sim.fleet.settings import Pick
from heliotrope_sim.fleet.topology import Topology
from heliotrope_sim.fleet.view import SiteEngines
from heliotrope_sim.fleet.workload import Workload

if TYPE_CHECKING:
    from heliotrope.predict.models import LearnedModels

Float64 = NDArray[np.float64]
Scores = Callable[[int, Candidates], Float64]
"""(request, candidates) → the weighted score of the scorers for each endpoint, higher is better."""


@dataclass(frozen=True, slots=True)
class EndpointTraits:
    """What a site's engines are beside their step model; NaN: unknown."""

    quality: float = float("nan")
    price_per_hour: float = float("nan")
    embodied_grams: float = float("nan")
    embodied_lifetime_seconds: float = float("nan")
    wue_l_per_kwh: float = float("nan")


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """How the endpoint tier decides."""

    policy: DecisionPolicy
    traits: Sequence[EndpointTraits] = ()
    """By site; empty: nothing is known of any."""
    scores: Scores | None = None
    """None: all endpoints score the same."""
    models: "LearnedModels | None" = None
    links: Links | None = None
    """Where KV may go from engine to engine; None: nowhere. The policy's `KvRules` say which of it may be used."""
    pairs: bool = False
    """Whether one engine may prefill for another, over those links."""
    signal_stale_seconds: float = 7200.0
    signal_type: SignalType = SignalType.AVERAGE
    start_unix_s: float = 0.0
    """As `RunSettings.start_unix_s`."""
    keep_decisions: bool = False


@dataclass(slots=True)
class EndpointTier:
    """A `Picker` that asks `decide`. One per run: it remembers recent prefill duty."""

    topology: Topology
    workload: Workload
    settings: EndpointSettings
    outcomes: Counter[str] = field(default_factory=Counter)
    """How many decisions ended in which `heliotrope.decide.decision.Outcome`."""
    actions: Counter[str] = field(default_factory=Counter)
    """How many chosen plans use which `KvAction`."""
    decisions: list[Decision] = field(default_factory=list)
    """With `EndpointSettings.keep_decisions`."""
    _duty: list[tuple[float, Float64]] = field(default_factory=list)
    _pools: dict[tuple[int, ...], tuple[KvPool, PairPool]] = field(default_factory=dict)

    def __call__(self, request: int, seconds: float, sites: Sequence[SiteEngines]) -> Pick | None:
        """Where the request goes."""
        places = _places(sites, [site.takes_requests & site.ready for site in sites])
        if not places:
            # All that take requests still wake.
            places = _places(sites, [site.takes_requests for site in sites])
        if not places:
            return None
        now_s = self.settings.start_unix_s + seconds
        profile = self._profile(request)
        policy = self.settings.policy
        alone = self.candidates(request, seconds, sites, places)
        plans = alone
        if self.settings.links is not None:
            pulls, pairs = self._pool(sites, places, self.settings.links)
            plans = with_kv_plans(alone, float(profile.prompt_tokens), policy.kv, pulls)
            if self.settings.pairs and pairs.possible:
                plans = with_pairs(plans, alone, pairs, profile, policy, now_s)
        decision = decide(profile, plans, policy, now_s, models=self.settings.models)
        self.outcomes[decision.outcome.value] += 1
        if self.settings.keep_decisions:
            self.decisions.append(decision)
        return None if decision.winner is None else self._pick(decision, decision.winner, places)

    def candidates(
        self, request: int, seconds: float, sites: Sequence[SiteEngines], places: Sequence[tuple[int, int]]
    ) -> Candidates:
        """The endpoints at these places (site, engine) as columns, without plans that move KV."""
        which = [np.array([e for s, e in places if s == index], dtype=np.intp) for index in range(len(sites))]

        def column(of: Callable[[SiteEngines], NDArray[np.generic]]) -> Float64:
            parts = [of(site)[rows] for site, rows in zip(sites, which, strict=True) if len(rows)]
            return np.concatenate(parts).astype(np.float64)

        models = [sites[s].site.model.at_clock(int(sites[s].clock_mhz[e])) for s, e in places]
        traits = [self._traits(s) for s, _ in places]
        candidates = endpoint_columns(
            [f"{sites[s].site.name}/{e}" for s, e in places],
            [sites[s].site.name for s, _ in places],
            self._views(request, seconds),
            engine_rows=np.stack([coefficients(model) for model in models]),
            hardware=hardware_rows(models),
            running=column(lambda site: site.running),
            waiting=column(lambda site: site.waiting),
            waiting_tokens=column(lambda site: site.queued_tokens),
            oldest_waiting_seconds=column(lambda site: site.oldest_waiting_seconds),
            kv_tokens=column(lambda site: site.kv_tokens),
            prefill_duty=self._prefill_duty(seconds, sites, places),
            cached_tokens=column(lambda site: site.cached_tokens(request)),
            quality=[t.quality for t in traits],
            price_per_hour=[t.price_per_hour for t in traits],
            embodied_grams=[t.embodied_grams for t in traits],
            embodied_lifetime_seconds=[t.embodied_lifetime_seconds for t in traits],
            kv_capacity_tokens=[m.kv_capacity_tokens for m in models],
            sm_clock_mhz=column(lambda site: site.clock_mhz),
        )
        if self.settings.scores is not None:
            candidates.base_score[:] = self.settings.scores(request, candidates)
        return candidates

    def _profile(self, request: int) -> RequestProfile:
        kind = self.workload.classes[int(self.workload.class_index[request])]
        return RequestProfile(
            request_id=str(request),
            model=self.topology.sites[0].model.model,
            prompt_tokens=int(self.workload.prompt_tokens[request]),
            expected_output_tokens=float(self.workload.expected_output_tokens[request]),
            streaming=True,
            ttft_slo_seconds=kind.ttft_slo_seconds,
            tpot_slo_seconds=kind.tpot_slo_seconds,
        )

    def _traits(self, site: int) -> EndpointTraits:
        return self.settings.traits[site] if self.settings.traits else EndpointTraits()

    def _views(self, request: int, seconds: float) -> dict[str, RegionView]:
        now_s = self.settings.start_unix_s + seconds
        rtt = self.topology.rtt_seconds[self.workload.origin[request]]
        views = {}
        for index, site in enumerate(self.topology.sites):
            point = None if site.carbon is None else site.carbon.at(now_s)
            signal = ABSENT
            if point is not None:
                reading = Reading(
                    point.intensity_g_per_kwh, now_s, "simulated", self.settings.signal_type, EmissionFactor.LIFECYCLE
                )
                signal = CarbonSignal(reading, stale_after_s=self.settings.signal_stale_seconds)
            water = self._traits(index).wue_l_per_kwh
            views[site.name] = RegionView(site.name, signal, site.pue, water, float(rtt[index]))
        return views

    def _prefill_duty(self, seconds: float, sites: Sequence[SiteEngines], places: Sequence[tuple[int, int]]) -> Float64:
        """Share of the recent time that each endpoint spent in prefill."""
        now = np.concatenate([site.prefill_seconds for site in sites])
        while len(self._duty) > 1 and self._duty[1][0] <= seconds - DUTY_SECONDS:
            self._duty.pop(0)
        if not self._duty:
            self._duty.append((0.0, np.zeros_like(now)))
        since, before = self._duty[0]
        if seconds > self._duty[-1][0]:
            self._duty.append((seconds, now))
        elapsed = seconds - since
        duty = np.clip((now - before) / elapsed, 0.0, 0.99) if elapsed > 0.0 else np.zeros_like(now)
        firsts = np.cumsum([0, *(len(site.running) for site in sites)])
        return duty[[int(firsts[s]) + e for s, e in places]]

    def _pool(
        self, sites: Sequence[SiteEngines], places: Sequence[tuple[int, int]], links: Links
    ) -> tuple[KvPool, PairPool]:
        """What KV takes from engine to engine, kept as long as the same ones take requests."""
        key = tuple(s * 65_536 + e for s, e in places)
        if key not in self._pools:
            models = [sites[s].site.model for s, _ in places]
            where = [
                Place(node=f"{sites[s].site.name}/{e // sites[s].site.engines_per_node}", region=sites[s].site.name)
                for s, e in places
            ]
            ends = [(f"{s}/{e}", m, w) for (s, e), m, w in zip(places, models, where, strict=True)]
            self._pools.clear()
            self._pools[key] = kv_pool(models, where, [True] * len(places), links), pair_pool(ends, ends, links)
        return self._pools[key]

    def _pick(self, decision: Decision, row: int, places: Sequence[tuple[int, int]]) -> Pick:
        plans = decision.candidates
        by_name = {name: places[i] for i, name in enumerate(plans.endpoints[: plans.endpoint_count])}
        site, engine = by_name[plans.endpoints[row]]
        action = plans.kv_actions[row]
        self.actions[action.value] += 1
        took, drew = float(plans.transfer_seconds[row]), float(plans.transfer_joules[row])
        if row >= plans.aggregated_count:
            prefill = by_name[plans.prefill_endpoint(row)]
            return Pick(site, engine, prefill=prefill, transfer_seconds=took, transfer_joules=drew)
        if action is KvAction.PEER_TRANSFER:
            fetched = int(plans.cached_tokens[row])
            return Pick(site, engine, fetched_tokens=fetched, transfer_seconds=took, transfer_joules=drew)
        return Pick(site, engine)


def _places(sites: Sequence[SiteEngines], masks: Sequence[NDArray[np.bool_]]) -> list[tuple[int, int]]:
    return [(s, e) for s in range(len(sites)) for e in np.flatnonzero(masks[s]).tolist()]
