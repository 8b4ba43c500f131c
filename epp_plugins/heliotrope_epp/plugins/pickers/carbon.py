"""`carbon-picker`: the cleanest endpoint that keeps the policy's promises.

The pipeline puts it in the picker's slot when a CarbonPolicy with `Enforce` is attached, so it need not be listed in
the configuration. It turns the filtered options into columns and hands them to `heliotrope.decide`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random

import numpy as np

from heliotrope.cache.action import KvAction
from heliotrope.decide.candidates import Candidates, FloatColumn, RegionView
from heliotrope.decide.decision import Decision, decide
from heliotrope.decide.feasible import Loss
from heliotrope.decide.holdout import UNASSIGNED, Assignment
from heliotrope.decide.request import RequestProfile
from heliotrope.predict.models import LearnedModels
from heliotrope_epp.plugins.context import CarbonContext
from heliotrope_epp.plugins.interface import LlmRequest, Option, Pick
from heliotrope_epp.plugins.pickers.fixed import FixedColumns, FixedColumnsCache
from heliotrope_epp.plugins.pickers.ranking import PickerParameters, best_first

CARBON_PICKER = "carbon-picker"

NEVER = frozenset({Loss.REGION, Loss.QUALITY, Loss.CAPACITY})
"""Constraints that hold for fallbacks too: a gateway's retry must not leave the allowed regions."""


class CarbonPicker:
    """Decides by the attached policy; without one, or under `Advise`, by score as `max-score-picker` does."""

    def __init__(
        self,
        parameters: PickerParameters,
        context: CarbonContext,
        random: Random,
        models: Callable[[], LearnedModels | None] = lambda: None,
    ) -> None:
        """`models` gives the learned models of the moment."""
        self._count = parameters.max_num_of_endpoints
        self._context = context
        self._random = random
        self._models = models
        self._fixed = FixedColumnsCache()

    def evaluate(
        self,
        request: LlmRequest,
        options: Sequence[Option],
        scores: FloatColumn,
        now_unix_s: float,
        assignment: Assignment = UNASSIGNED,
    ) -> Decision | None:
        """What the attached policy decides, whether or not it is enforced; None without a policy."""
        policy = self._context.policy()
        if policy is None:
            return None
        candidates = candidates_of(options, scores, self._context.regions(), self._fixed.of(options))
        return decide(
            request_profile(request), candidates, policy, now_unix_s, assignment=assignment, models=self._models()
        )

    def pick(
        self,
        request: LlmRequest,
        options: Sequence[Option],
        scores: FloatColumn,
        now_unix_s: float,
        assignment: Assignment = UNASSIGNED,
    ) -> Pick:
        """Choose by the policy, with fallbacks by score among the endpoints that its hard constraints allow."""
        decision = self.evaluate(request, options, scores, now_unix_s, assignment)
        order = best_first(scores, self._random)
        if decision is None or not decision.policy.enforce:
            return Pick(tuple(options[i] for i in order[: self._count]), decision=decision)
        if decision.winner is None:
            return Pick((), _why_nothing(decision), decision)
        fallbacks = [i for i in order if i != decision.winner and decision.losses[i] not in NEVER]
        chosen = (decision.winner, *fallbacks[: self._count - 1])
        return Pick(tuple(options[i] for i in chosen), decision=decision)


def request_profile(request: LlmRequest) -> RequestProfile:
    """The request as a decision sees it, without its text."""
    return RequestProfile(
        request_id=request.request_id,
        model=request.model,
        prompt_tokens=request.prompt_tokens,
        expected_output_tokens=request.expected_output_tokens,
        streaming=request.streaming,
        ttft_slo_seconds=request.ttft_slo_seconds,
        tpot_slo_seconds=request.tpot_slo_seconds,
        reasoning=request.reasoning,
    )


def candidates_of(
    options: Sequence[Option],
    scores: FloatColumn,
    regions: Mapping[str, RegionView],
    fixed: FixedColumns | None = None,
) -> Candidates:
    """The options as columns, in their order; what is unknown is NaN or None.

    `fixed` are the columns of these options that only change with the resources, if they are at hand.
    """
    if fixed is None:
        fixed = FixedColumnsCache().of(options)
    loads = [option.load for option in options]
    n = len(options)
    return Candidates(
        endpoints=fixed.endpoints,
        endpoint_count=n,
        regions=fixed.regions,
        region_names=fixed.region_names,
        region_codes=fixed.region_codes,
        engine_rows=fixed.engine_rows,
        running=np.array([load.running for load in loads], dtype=np.float64),
        waiting=np.array([load.waiting for load in loads], dtype=np.float64),
        waiting_tokens=np.array([load.waiting_tokens for load in loads], dtype=np.float64),
        oldest_waiting_seconds=np.array([load.oldest_waiting_seconds for load in loads], dtype=np.float64),
        kv_tokens=np.array([load.kv_tokens for load in loads], dtype=np.float64),
        prefill_duty=np.array([load.prefill_duty for load in loads], dtype=np.float64),
        cached_tokens=np.array([option.cached_tokens for option in options], dtype=np.float64),
        quality=fixed.quality,
        price_per_hour=fixed.price_per_hour,
        base_score=scores,
        embodied_grams=fixed.embodied_grams,
        embodied_lifetime_seconds=fixed.embodied_lifetime_seconds,
        region_views=regions,
        hardware_rows=fixed.hardware_rows,
        prefill_tokens_in_flight=np.array([load.prefill_tokens_in_flight for load in loads], dtype=np.float64),
        decode_tokens_in_flight=np.array([load.decode_tokens_in_flight for load in loads], dtype=np.float64),
        kv_capacity_tokens=np.array([load.kv_capacity_tokens for load in loads], dtype=np.float64),
        power_watts=np.array([load.power_watts for load in loads], dtype=np.float64),
        sm_clock_mhz=np.array([load.sm_clock_mhz for load in loads], dtype=np.float64),
        seconds_since_piece=np.array([load.seconds_since_piece for load in loads], dtype=np.float64),
        recent_running=np.array([load.recent_running for load in loads], dtype=np.float64),
        recent_prompt_tokens_per_second=np.array(
            [load.recent_prompt_tokens_per_second for load in loads], dtype=np.float64
        ),
        kv_actions=tuple(
            KvAction.ROUTE_TO_OWNER if option.cached_tokens > 0.0 else KvAction.RECOMPUTE for option in options
        ),
        kv_sources=(None,) * n,
        transfer_seconds=np.zeros(n),
        transfer_joules=np.zeros(n),
    )


def _why_nothing(decision: Decision) -> str:
    counts = Counter(str(loss) for loss in decision.losses if loss in NEVER)
    reasons = ", ".join(f"{loss} ({count})" for loss, count in counts.most_common())
    return f"no endpoint satisfies policy {decision.policy.name}: {reasons}"
