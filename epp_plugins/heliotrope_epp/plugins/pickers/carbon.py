"""`carbon-picker`: the cleanest endpoint that keeps the policy's promises.

The pipeline puts it in the picker's slot when a CarbonPolicy with `Enforce` is attached, so it need not be listed in
the configuration. It turns the filtered options into columns and hands them to `heliotrope.decide`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from heliotrope.cache.gate import OFF, Gate
from heliotrope.cache.links import Links
from heliotrope.carbon.arms import Arm
from heliotrope.decide.candidates import Candidates, FloatColumn, RegionView
from heliotrope.decide.decision import Decision, decide
from heliotrope.decide.encode import Encoding
from heliotrope.decide.feasible import Loss
from heliotrope.decide.helpers import usable_helpers
from heliotrope.decide.holdout import UNASSIGNED, Assignment
from heliotrope.decide.phases import with_pairs
from heliotrope.decide.plans import with_kv_plans
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.session import with_session
from heliotrope.decide.standing import UNKNOWN_STANDING, Standing
from heliotrope.engine.encoder import DEFAULT_ENCODER, EncoderModel
from heliotrope.predict.models import LearnedModels
from heliotrope_epp.plugins.context import CarbonContext
from heliotrope_epp.plugins.embeddings import EmbeddingIndex
from heliotrope_epp.plugins.interface import LlmRequest, Option, Options, Pick
from heliotrope_epp.plugins.kv_labels import place_of
from heliotrope_epp.plugins.pickers.columns import candidates_of, request_profile
from heliotrope_epp.plugins.pickers.fixed import FixedColumns, FixedColumnsCache
from heliotrope_epp.plugins.pickers.ranking import PickerParameters, best_first
from heliotrope_epp.plugins.pickers.transfers import KvPoolCache, PairPoolCache

CARBON_PICKER = "carbon-picker"

NEVER = frozenset({Loss.REGION, Loss.QUALITY, Loss.CAPACITY})
"""Constraints that hold for fallbacks too: a gateway's retry must not leave the allowed regions."""


@dataclass(frozen=True, slots=True)
class Prefillers:
    """The endpoints that may do a phase for others: prefill, or encode."""

    options: Options
    standing: Standing


@dataclass(frozen=True, slots=True)
class Helpers:
    """Endpoints that a policy may give a phase of the request to; None: that phase stays with the rest."""

    prefill: Prefillers | None = None
    encode: Prefillers | None = None


class CarbonPicker:
    """Decides by the attached policy; without one, or under `Advise`, by score as `max-score-picker` does."""

    def __init__(
        self,
        parameters: PickerParameters,
        context: CarbonContext,
        random: Random,
        models: Callable[[], LearnedModels | None] = lambda: None,
        links: Links | None = None,
        gate: Gate = OFF,
        encoder: EncoderModel = DEFAULT_ENCODER,
        embeddings: EmbeddingIndex | None = None,
    ) -> None:
        """`models` gives the learned models of the moment; `links` say what moving KV blocks costs.

        `gate` keeps sessions where their caches are; `encoder` says what encoding images takes, `embeddings` where that
        has been done already.
        """
        self._links = links or Links()
        self._encoder = encoder
        self._embeddings = EmbeddingIndex() if embeddings is None else embeddings
        self._encode_fixed = FixedColumnsCache()
        self._count = parameters.max_num_of_endpoints
        self._context = context
        self._random = random
        self.models = models
        """See above."""
        self._fixed = FixedColumnsCache()
        self._kv_pools = KvPoolCache(links or Links())
        self._prefill_fixed = FixedColumnsCache()
        self.pair_pools = PairPoolCache(links or Links())
        """Which endpoints make pairs."""
        self._gate = gate

    def evaluate(
        self,
        request: LlmRequest,
        options: Options,
        scores: FloatColumn,
        now_unix_s: float,
        assignment: Assignment = UNASSIGNED,
        policy: DecisionPolicy | None = None,
        standing: Standing = UNKNOWN_STANDING,
        prefillers: Prefillers | None = None,
        encoders: Prefillers | None = None,
    ) -> Decision | None:
        """What the attached policy decides, whether or not it is enforced; None without a policy.

        `policy` is the one that holds for this request (`heliotrope.decide.resolve`); by default the attached one.
        `prefillers` may prefill for the options; None: each prefills what it decodes.
        `encoders` may encode for whoever prefills; None: each encodes what it prefills.

        A held-out request is chosen for as if nobody could do a phase for others: who does, the profiles say. What the
        policy would do with them is its `steered`.
        """
        policy = policy or self._context.policy()
        if policy is None:
            return None
        if assignment.arm is Arm.HOLDOUT and not (prefillers is None and encoders is None):
            arguments = request, options, scores, now_unix_s
            steered = replace(assignment, arm=Arm.STEERED)
            whole = self.evaluate(*arguments, steered, policy, standing, prefillers, encoders)
            blind = self.evaluate(*arguments, assignment, policy, standing)
            return None if blind is None else replace(blind, steered=whole)
        fixed = self._fixed.of(options)
        last_served = _last_served(request, fixed.endpoints)
        if last_served is not None and policy.largest_region_share < 1.0:
            standing = replace(standing, session_region=fixed.regions[last_served])
        candidates = with_kv_plans(
            candidates_of(options, scores, self._context.regions(), fixed, last_served),
            float(request.prompt_tokens),
            policy.kv,
            self._kv_pools.of(options.states, fixed),
            offloaded_tokens=options.offloaded_tokens,
            offloaded_deviation_tokens=options.offloaded_deviation_tokens,
            last_served=None if policy.kv.own_caches_count else last_served,
            crowd=standing.crowd,
        )
        profile = request_profile(request)
        if prefillers is not None:
            candidates = self._with_pairs(profile, options, fixed, candidates, prefillers, policy, now_unix_s, standing)
        if request.media:
            candidates = self._with_encoding(request, options, candidates, prefillers, encoders, policy, now_unix_s)
        decision = decide(
            profile,
            candidates,
            policy,
            now_unix_s,
            assignment=assignment,
            models=self.models(),
            standing=standing,
        )
        session = request.session
        if session is None:
            return decision
        return with_session(decision, session.view, self._gate, session.identity.source.value)

    def alone(
        self, prompt_tokens: int, others: Options, regions: Mapping[str, RegionView], policy: DecisionPolicy
    ) -> Candidates:
        """Prefillers, each with what it caches itself."""
        alone = candidates_of(others, np.zeros(len(others)), regions, self._prefill_fixed.of(others))
        return with_kv_plans(alone, float(prompt_tokens), policy.kv)

    def _with_pairs(
        self,
        profile: RequestProfile,
        options: Options,
        decode: FixedColumns,
        candidates: Candidates,
        prefillers: Prefillers,
        policy: DecisionPolicy,
        now_unix_s: float,
        standing: Standing,
    ) -> Candidates:
        others = prefillers.options
        fixed = self._prefill_fixed.of(others)
        pool = self.pair_pools.of(options.states, others.states, (decode, fixed))
        if pool is None:
            return candidates
        return with_pairs(
            candidates,
            self.alone(profile.prompt_tokens, others, candidates.region_views, policy),
            pool,
            profile,
            policy,
            now_unix_s,
            standing=standing,
            prefill_standing=prefillers.standing,
        )

    def _with_encoding(
        self,
        request: LlmRequest,
        options: Options,
        candidates: Candidates,
        prefillers: Prefillers | None,
        encoders: Prefillers | None,
        policy: DecisionPolicy,
        now_unix_s: float,
    ) -> Candidates:
        states = [*options.states]
        pool = usable = None
        if prefillers is not None:
            states += prefillers.options.states
        if encoders is not None and len(encoders.options):
            others = encoders.options
            states += others.states
            fixed = self._encode_fixed.of(others)
            pool = candidates_of(others, np.zeros(len(others)), candidates.region_views, fixed)
            usable = usable_helpers(candidates, pool, policy, now_unix_s, helper_standing=encoders.standing)
        encoding = Encoding(
            model=self._encoder,
            cached=self._embeddings.held(request.media),
            encoders=pool,
            usable=usable,
            places={state.endpoint.key: place_of(state.endpoint, state.traits) for state in states},
            links=self._links,
        )
        return replace(candidates, encoding=encoding)

    def pick(
        self,
        request: LlmRequest,
        options: Options,
        scores: FloatColumn,
        now_unix_s: float,
        assignment: Assignment = UNASSIGNED,
        policy: DecisionPolicy | None = None,
        standing: Standing = UNKNOWN_STANDING,
        prefillers: Prefillers | None = None,
        encoders: Prefillers | None = None,
    ) -> Pick:
        """Choose by the policy, with fallbacks by score among the endpoints that its hard constraints allow."""
        decision = self.evaluate(
            request, options, scores, now_unix_s, assignment, policy, standing, prefillers, encoders
        )
        if decision is None or not decision.policy.enforce:
            order = best_first(scores, self._random)
            return Pick(tuple(options[i] for i in order[: self._count]), decision=decision)
        if decision.winner is None:
            return Pick((), _why_nothing(decision), decision)
        # A plan that fetches KV blocks, or is prefilled elsewhere, stands behind the endpoints, of which it is one.
        # What is held out has its phases elsewhere by the profiles.
        if assignment.arm is Arm.HOLDOUT:
            prefillers = encoders = None
        prefill = None if prefillers is None else _prefiller(decision, decision.winner, prefillers.options)
        winner = decision.candidates.endpoints.index(decision.candidates.endpoints[decision.winner])
        chosen = [winner]
        if self._count > 1:
            losses = decision.losses
            order = best_first(scores, self._random)
            spares = [i for i in order if i != winner and losses[i] not in NEVER]
            if prefill is not None:
                # A gateway's retry carries the same header, so it must go where the prefiller's blocks fit.
                spares = self.pair_pools.partners(options.states, prefill.state, spares)
            chosen += spares[: self._count - 1]
        encode = () if encoders is None else _encoders(decision, decision.winner, encoders.options)
        return Pick(tuple(options[i] for i in chosen), decision=decision, prefill=prefill, encoders=encode)


def _prefiller(decision: Decision, row: int, options: Options) -> Option | None:
    """Where the plan of this row prefills, if that is not where it decodes."""
    candidates = decision.candidates
    pair = row - candidates.aggregated_count
    return None if candidates.pairs is None or pair < 0 else options[int(candidates.pairs.rows[pair])]


def _encoders(decision: Decision, row: int, options: Options) -> tuple[Option, ...]:
    """Where the plan of this row has images encoded, if that is not where it prefills."""
    encodes = decision.estimates.encodes
    return () if encodes is None else tuple(options[i] for i in encodes.plans[row].encoders)


def _last_served(request: LlmRequest, endpoints: Sequence[str]) -> int | None:
    """The row of the endpoint that served the session's last turn."""
    view = None if request.session is None else request.session.view
    previous = None if view is None else view.previous_endpoint
    return endpoints.index(previous) if previous in endpoints else None


def _why_nothing(decision: Decision) -> str:
    counts = Counter(str(loss) for loss in decision.losses if loss in NEVER)
    reasons = ", ".join(f"{loss} ({count})" for loss, count in counts.most_common())
    return f"no endpoint satisfies policy {decision.policy.name}: {reasons}"
