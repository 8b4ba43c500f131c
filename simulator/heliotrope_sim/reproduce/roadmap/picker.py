"""One request's endpoint, by an arm: the functions of `heliotrope.decide` unchanged, or a baseline as in llm-d."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.action import KvAction
from heliotrope.cache.links import Links, Place, Tier
from heliotrope.cache.plans import kv_pool
from heliotrope.cache.rules import KvRules
from heliotrope.decide.candidates import Candidates, RegionView
from heliotrope.decide.decision import Decision, decide
from heliotrope.decide.encode import Encoding
from heliotrope.decide.phases import PairPool, pair_pool, with_pairs
from heliotrope.decide.plans import with_kv_plans
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.quality import Group, Member, ModelRules, Prediction, Predictor, judge
from heliotrope.decide.request import RequestProfile
from heliotrope.media.attachment import Attachment, Modality
from heliotrope.predict.reasoning import UNSAID
from heliotrope_sim.engine.fixed_point import seconds
from heliotrope_sim.reproduce.roadmap.apart import always_apart
from heliotrope_sim.reproduce.roadmap.arms import Arm, Phases, Route
from heliotrope_sim.reproduce.roadmap.believed import Believed, Endpoint
from heliotrope_sim.reproduce.roadmap.testbed import A100, H100, MODEL_8B, MODEL_70B
from heliotrope_sim.reproduce.roadmap.workloads import BLOCK_TOKENS, Arrival

QUALITY_LOSS = {MODEL_8B: 0.62, MODEL_70B: 0.15}
"""What a model's quality loses from the easiest to the hardest request, as in context-is-not-free's generator."""
SIGMA_QUALITY = 0.03
"""Of the prediction's error."""
QUALITY_FLOOR = 0.85
"""β of what the best model is predicted to reach."""
PREFIX_WEIGHT, QUEUE_WEIGHT, MEMORY_WEIGHT = 3.0, 2.0, 2.0
"""Of llm-d's default scorers: prefix cache, queue, KV memory."""
_GROUP = Group(MODEL_70B, (Member(MODEL_70B, MODEL_70B), Member(MODEL_8B, MODEL_8B)))
_MODELS = ModelRules({MODEL_70B: _GROUP}, floor=QUALITY_FLOOR, predictor=Predictor.LEARNED)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a request goes, and how; endpoints are positions in the testbed."""

    endpoint: int
    prefill: int | None = None
    source: int | None = None
    """The endpoint that blocks are pulled from."""
    fetched_tokens: int = 0
    encoders: tuple[int, ...] = ()
    """Image i is encoded at the one at i modulo their number; none: where it is prefilled."""
    cached_tokens: float = 0.0
    """That the decision counted on."""
    action: KvAction = KvAction.RECOMPUTE
    features: NDArray[np.float64] | None = field(default=None, repr=False)
    """What learned models see; None: nothing was estimated."""
    believed_ttft_seconds: float = float("nan")
    believed_joules: float = float("nan")
    outcome: str = ""


def true_quality(difficulty: float, model: str) -> float:
    """Of an answer, in [0, 1]."""
    return 1.0 - QUALITY_LOSS[model] * difficulty


class Picker:
    """Chooses for every request of one run.

    Args:
        arm: how.
        endpoints: where.
        seed: of the errors of predicted qualities.
    """

    def __init__(self, arm: Arm, endpoints: Sequence[Endpoint], seed: int) -> None:
        self._arm = arm
        self._endpoints = endpoints
        self._random = np.random.default_rng([seed, 99])
        specs = [endpoint.spec for endpoint in endpoints]
        self._believed = Believed(specs, energy_known=arm.energy_known)
        self.links = Links()
        self.places = [Place(node=spec.name, rack=spec.region.name, region=spec.region.name) for spec in specs]
        self._index = {spec.name: i for i, spec in enumerate(specs)}
        self._served = {spec.model.model for spec in specs}
        self._ends = [(spec.name, spec.model, place) for spec, place in zip(specs, self.places, strict=True)]
        self._pair_pools: dict[tuple[tuple[int, ...], tuple[int, ...]], PairPool] = {}
        self._turn = 0
        self._sessions: dict[int, int] = {}
        self._policy = DecisionPolicy(
            name="roadmap",
            order=arm.order,
            include_embodied=arm.embodied,
            kv=KvRules(allowed=arm.actions),
        )

    def choose(self, arrival: Arrival, views: Mapping[str, RegionView], now_ns: int) -> Chosen | None:
        """Where a request goes; None: nowhere."""
        rows, qualities = self._models(arrival)
        pinned = self._sessions.get(arrival.session)
        if self._arm.pinned and pinned is not None:
            rows = [pinned]
        hashes = arrival.hashes[: (arrival.prompt_tokens - 1) // BLOCK_TOKENS] if self._arm.reuse else ()
        alone, offloaded = self._believed.candidates(rows, self._endpoints, hashes, qualities, views, now_ns)
        if self._arm.route is Route.DECIDE:
            chosen = self._decided(arrival, rows, alone, offloaded, now_ns)
        else:
            row = self._baseline(alone, arrival)
            chosen = Chosen(rows[row], cached_tokens=float(alone.cached_tokens[row]), action=alone.kv_actions[row])
        if chosen is not None:
            self._sessions.setdefault(arrival.session, chosen.endpoint)
        return chosen

    def _models(self, arrival: Arrival) -> tuple[list[int], dict[str, float]]:
        """Endpoints whose model may answer, and predicted qualities. Requests ask for the largest model there is."""
        true = {model: true_quality(arrival.difficulty, model) for model in sorted(self._served)}
        predicted = {m: float(np.clip(q + self._random.normal(0.0, SIGMA_QUALITY), 0.0, 1.0)) for m, q in true.items()}
        serving = frozenset({MODEL_70B if MODEL_70B in self._served else MODEL_8B})
        if self._arm.models:
            prediction = Prediction(predicted, Predictor.LEARNED, arrival.kind.name)
            verdict = judge(_GROUP, _MODELS, prediction, frozenset(self._served), UNSAID)
            serving = serving if verdict is None else verdict.serving()
            if self._arm.route is not Route.DECIDE and MODEL_8B in serving:
                # A router of models alone takes the smallest that is good enough.
                serving = frozenset({MODEL_8B})
        rows = [i for i, endpoint in enumerate(self._endpoints) if endpoint.spec.model.model in serving]
        return rows, predicted

    def _baseline(self, alone: Candidates, arrival: Arrival) -> int:
        if self._arm.route is Route.ROUND_ROBIN:
            self._turn += 1
            return (self._turn - 1) % len(alone)
        load = alone.running + alone.waiting
        if self._arm.route is Route.LEAST_LOADED:
            return int(np.argmin(load))
        waiting = alone.waiting
        spread = float(waiting.max() - waiting.min())
        queue = (waiting.max() - waiting) / spread if spread else np.ones(len(alone))
        memory = 1.0 - np.clip(alone.kv_tokens / alone.kv_capacity_tokens, 0.0, 1.0)
        prefix = alone.cached_tokens / arrival.prompt_tokens
        score = PREFIX_WEIGHT * prefix + QUEUE_WEIGHT * queue + MEMORY_WEIGHT * memory
        best = np.flatnonzero(score >= score.max() - 1e-9)
        return int(best[np.argmin(load[best])])

    def _profile(self, arrival: Arrival) -> RequestProfile:
        kind = arrival.kind
        return RequestProfile(
            request_id=str(arrival.number),
            model=MODEL_8B,
            prompt_tokens=arrival.prompt_tokens,
            expected_output_tokens=arrival.expected_output_tokens,
            streaming=True,
            ttft_slo_seconds=kind.ttft_slo_seconds if self._arm.promises else None,
            tpot_slo_seconds=kind.tpot_slo_seconds if self._arm.promises else None,
            media=tuple(Attachment(Modality.IMAGE, p.key, p.tokens) for p in arrival.pictures),
        )

    def _decided(
        self,
        arrival: Arrival,
        rows: Sequence[int],
        alone: Candidates,
        offloaded: NDArray[np.float64],
        now_ns: int,
    ) -> Chosen | None:
        arm, profile, now_s = self._arm, self._profile(arrival), seconds(now_ns)
        policy = self._policy
        if arm.promises:
            kind = arrival.kind
            policy = replace(policy, ttft_slo_seconds=kind.ttft_slo_seconds, tpot_slo_seconds=kind.tpot_slo_seconds)
        if arm.phases is Phases.FIXED:
            plans, policy = self._fixed(profile, policy, rows, alone)
        else:
            plans = self._with_kv(profile, policy, rows, alone, offloaded)
            if arm.phases is Phases.ADAPTIVE:
                plans = with_pairs(plans, alone, self._pairs(rows, rows), profile, policy, now_s)
        if arrival.pictures:
            plans = replace(plans, encoding=self._encoding(arrival, rows, alone))
        return self._chosen(decide(profile, plans, policy, now_s))

    def _with_kv(
        self,
        profile: RequestProfile,
        policy: DecisionPolicy,
        rows: Sequence[int],
        alone: Candidates,
        offloaded: NDArray[np.float64],
    ) -> Candidates:
        moving = policy.kv.allowed & {KvAction.PEER_TRANSFER, KvAction.OFFLOAD_RELOAD}
        pool = None
        if moving:
            specs = [self._endpoints[i].spec for i in rows]
            pulls = [KvAction.PEER_TRANSFER in moving] * len(rows)
            tiers = [Tier.CPU if self._arm.tiers else None] * len(rows)
            pool = kv_pool([s.model for s in specs], [self.places[i] for i in rows], pulls, self.links, tiers)
        # A session's last endpoint is no more than one that caches its prefix.
        return with_kv_plans(alone, float(profile.prompt_tokens), policy.kv, pool, offloaded_tokens=offloaded)

    def _fixed(
        self, profile: RequestProfile, policy: DecisionPolicy, rows: Sequence[int], alone: Candidates
    ) -> tuple[Candidates, DecisionPolicy]:
        specs = [self._endpoints[row].spec for row in rows]
        prefills = [i for i, spec in enumerate(specs) if spec.hardware is H100]
        decodes = [i for i, spec in enumerate(specs) if spec.hardware is A100]
        if not prefills or not decodes:
            return alone, policy
        planes = self._pairs([rows[i] for i in decodes], [rows[i] for i in prefills]).planes
        near = [
            (d, p) for d, i in enumerate(decodes) for p, j in enumerate(prefills) if specs[i].region is specs[j].region
        ]
        return always_apart(alone, decodes, prefills, near, planes, profile, policy)

    def _pairs(self, decode: Sequence[int], prefill: Sequence[int]) -> PairPool:
        key = tuple(decode), tuple(prefill)
        if key not in self._pair_pools:
            self._pair_pools[key] = pair_pool(
                [self._ends[i] for i in decode], [self._ends[i] for i in prefill], self.links
            )
        return self._pair_pools[key]

    def _encoding(self, arrival: Arrival, rows: Sequence[int], alone: Candidates) -> Encoding:
        keys = [picture.key for picture in arrival.pictures]
        cached = {}
        for row in rows:
            encoder = self._endpoints[row].engine.encoder
            if encoder is not None:
                cached[self._endpoints[row].spec.name] = frozenset(key for key in keys if key in encoder.cache)
        places = {self._endpoints[row].spec.name: self.places[row] for row in rows}
        pool = alone if self._arm.encoders else None
        return Encoding(cached=cached, encoders=pool, places=places, links=self.links)

    def _chosen(self, decision: Decision) -> Chosen | None:
        row = decision.winner
        if row is None:
            return None
        plans, estimates = decision.candidates, decision.estimates
        endpoint = self._index[plans.endpoints[row]]
        prefill = self._index[plans.prefill_endpoint(row)]
        source = plans.kv_sources[row]
        paired = row >= plans.aggregated_count
        encoders = () if estimates.encodes is None else estimates.encodes.endpoints(row)
        return Chosen(
            endpoint=endpoint,
            prefill=prefill if paired else None,
            source=None if source is None else self._index[source],
            fetched_tokens=0 if source is None else int(plans.cached_tokens[row]),
            encoders=tuple(self._index[name] for name in encoders),
            cached_tokens=plans.reused_tokens(row),
            action=plans.kv_actions[row],
            features=None if paired or row >= len(estimates.features) else estimates.features[row],
            believed_ttft_seconds=float(estimates.ttft_seconds[row]),
            believed_joules=float(estimates.attributed_joules[row]),
            outcome=decision.outcome.value,
        )
