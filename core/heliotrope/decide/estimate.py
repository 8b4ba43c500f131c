"""What each plan would cost and how long it would take (equations 1-5 of sustainable-inference-control-plane).

Latencies follow paper carbon-slo-tension §IV:

    TTFT = RTT + W + t_pre(ISL + Q)          TPOT = [t_dec(B + 1, KV) + T_pre] / (1 − duty)

with two additions to TTFT: the rest of the step that is running when the request arrives, and what arrives while the
request still waits. Where it is known which step runs and since when (`heliotrope.predict.step_phase`), the steps that
end before the first token are added up (`heliotrope.decide.steps.arrival`). Where it is not, half a decode step is
expected, and as an engine prefills everything that waits in one step, up to its token budget, and answers none of it
before that step ends, a queue that takes time T to reach takes T / (1 − duty).

The step that prefills the request delays those that wait already: `queue_ttft_seconds` is the TTFT of the first of them
if this request joins, so that no plan breaks a promise that was given to somebody else.

Two energies are kept apart. `energy_joules` is the request's share of the steps it takes part in, at the batch that
the endpoint reaches if the pool's present load is consolidated on it: a price that does not depend on who happens to
be busy, as the facility formulation of the same paper charges a wake-up once for all that share it. Without that, an
idle clean engine looks an order of magnitude dearer than a busy dirty one and load never moves. It is what carbon and
cost are computed from. `incremental_joules` is what the fleet would draw more right now, so it prefers engines that
are awake anyway; it orders plans that are equally clean.

Images are encoded before the prefill, in place or elsewhere (`heliotrope.decide.encode`); that comes on top, whoever
estimated the rest.

What a prompt is believed to find cached may not be there; its deviation is part of the errors of TTFT and joules
(`heliotrope.decide.cached_deviation`).

Of a prefill/decode pair (`heliotrope.decide.phases`) the row says what the decoder takes, for a prompt of which one
token is left to compute; what the prefiller takes is added, and priced by its own region and hardware. Pairs are
estimated by the analytic model alone, and so is whatever they are compared with (`heliotrope.decide.basis`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from heliotrope.decide.basis import models_for
from heliotrope.decide.candidates import BoolColumn, Candidates, FloatColumn, FloatMatrix
from heliotrope.decide.columns import Columns
from heliotrope.decide.encode_estimate import Encodes, Prices, add_encodes
from heliotrope.decide.learned import apply_models
from heliotrope.decide.pair_estimate import add_prefills, occupied_seconds
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.region_columns import RegionColumns
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.rows import decision_rows
from heliotrope.predict.targets import Target

if TYPE_CHECKING:
    from heliotrope.predict.models import LearnedModels

_NOWHERE = np.empty(0)
"""No plan is elsewhere before it comes to its endpoint."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Columns, one value per candidate; NaN where unknown."""

    ttft_seconds: FloatColumn
    tpot_seconds: FloatColumn
    queue_ttft_seconds: FloatColumn
    """Of the first request that waits there, if this one joins; 0 where none waits."""
    ttft_relative_error: FloatColumn
    """One standard deviation over the estimate; so for the other errors."""
    tpot_relative_error: FloatColumn
    service_seconds: FloatColumn
    """Time from dispatch to the last token."""
    energy_joules: FloatColumn
    energy_relative_error: FloatColumn
    incremental_joules: FloatColumn
    attributed_joules: FloatColumn
    """The share that the request will be found to have drawn, at the mean of the batch it meets there and the one at
    which energy is shared: what a measurement of it is compared with."""
    batch: FloatColumn
    """The batch at which `energy_joules` is shared."""
    intensity_g_per_kwh: FloatColumn
    """Expected over the service time; NaN unless the region's signal is fresh."""
    grams_co2e: FloatColumn
    """Operational, plus the embodied share if the policy counts it."""
    water_liters: FloatColumn
    cost: FloatColumn
    kv_fits: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """False where the request can never fit into the endpoint's KV cache."""
    features: FloatMatrix
    """What learned models see of each candidate that is no pair, shape (n, F); `heliotrope.predict.features`."""
    learned: Mapping[Target, BoolColumn]
    """For which candidates a learned model gave the estimate."""
    prefiller_joules: FloatColumn | None = None
    """The part of `energy_joules` that is drawn where a pair prefills, 0 for other plans; None: there are no pairs."""
    encodes: Encodes | None = None
    """How each plan encodes the request's images; None: it has none."""
    models_unused: str | None = None
    """Why models that would have answered were not asked (`heliotrope.decide.basis`); None: all were."""


def estimate(
    request: RequestProfile,
    candidates: Candidates,
    policy: DecisionPolicy,
    now_unix_s: float,
    models: "LearnedModels | None" = None,
) -> Estimates:
    """Estimate every candidate; columns in the order of `candidates`.

    Args:
        request: its prompt and expected output length.
        candidates: endpoint states, projected to now.
        policy: says which emissions count.
        now_unix_s: the time of the decision, for carbon forecasts.
        models: learned models; where one answers, it takes the analytic model's place, unless there are pairs.
    """
    from heliotrope.decide.cached_deviation import add_to_estimates
    from heliotrope.decide.kernel import analytic, known_sum
    from heliotrope.decide.pricing import add_transfers, price_pairs, write_prices, write_service

    n = len(candidates)
    columns = Columns.unknown(n)
    regions = RegionColumns(candidates)
    rtt_seconds = regions.rtt_seconds
    analytic(
        candidates.engine_rows,
        candidates.running,
        candidates.waiting,
        candidates.waiting_tokens,
        candidates.oldest_waiting_seconds,
        candidates.kv_tokens,
        candidates.prefill_duty,
        candidates.cached_tokens,
        candidates.waiting_squared_tokens,
        candidates.step_seconds,
        candidates.step_prefills,
        rtt_seconds,
        float(request.prompt_tokens),
        request.expected_output_tokens,
        known_sum(candidates.running, candidates.waiting, candidates.endpoint_count),
        columns.table,
        columns.kv_fits,
    )
    doubts = candidates.cached_deviation_tokens
    if doubts is not None:
        add_to_estimates(
            candidates.engine_rows,
            candidates.waiting_tokens,
            candidates.cached_tokens,
            doubts,
            float(request.prompt_tokens),
            policy.certainty,
            columns.table,
        )
    features = decision_rows(
        request,
        candidates,
        ttft_seconds=columns.ttft,
        tpot_seconds=columns.tpot,
        attributed_joules=columns.attributed,
        prefill_joules=columns.prefill_joules,
    )[: candidates.aggregated_count]
    models, unused = models_for(models, candidates)
    learned = apply_models(models, features, columns, candidates)
    # Models know a prompt as cached or not; what fetching costs comes on top, whoever estimated the rest.
    add_transfers(columns.table, candidates.transfer_seconds, candidates.transfer_joules)
    pairs = candidates.pairs
    drawn = None if pairs is None else add_prefills(columns, candidates, pairs, rtt_seconds)
    elsewhere, occupied = (_NOWHERE, _NOWHERE) if pairs is None else occupied_seconds(pairs)
    service = np.empty(n)
    longest = write_service(columns.table, request.expected_output_tokens, service)
    region_table, priced = regions.table(now_unix_s, longest), np.empty((4, n))
    write_prices(
        columns.table,
        service,
        elsewhere,
        candidates.region_codes,
        region_table,
        candidates.embodied_grams,
        candidates.embodied_lifetime_seconds,
        candidates.price_per_hour,
        policy.include_embodied,
        priced,
    )
    if pairs is not None and drawn is not None:
        there, prefillers = RegionColumns(pairs.prefillers, regions), pairs.prefillers
        price_pairs(
            columns.energy,
            drawn,
            candidates.region_codes,
            region_table,
            pairs.rows,
            prefillers.region_codes,
            there.table(now_unix_s, longest),
            occupied,
            prefillers.embodied_grams,
            prefillers.embodied_lifetime_seconds,
            prefillers.price_per_hour,
            policy.include_embodied,
            priced,
        )
    intensity, grams, water, cost = priced
    encodes: Encodes | None = None
    if candidates.encoding is not None:
        prices = Prices(intensity, grams, water, cost)
        encodes = add_encodes(
            columns,
            service,
            prices,
            candidates,
            candidates.encoding,
            request,
            policy,
            regions,
            now_unix_s,
            longest,
        )
    return Estimates(
        ttft_seconds=columns.ttft,
        tpot_seconds=columns.tpot,
        queue_ttft_seconds=columns.queue_ttft,
        ttft_relative_error=columns.ttft_error,
        tpot_relative_error=columns.tpot_error,
        service_seconds=service,
        energy_joules=columns.energy,
        energy_relative_error=columns.energy_error,
        incremental_joules=columns.incremental,
        attributed_joules=columns.attributed,
        batch=columns.batch,
        intensity_g_per_kwh=intensity,
        grams_co2e=grams,
        water_liters=water,
        cost=cost,
        kv_fits=columns.kv_fits,
        features=features,
        learned=learned,
        prefiller_joules=drawn,
        encodes=encodes,
        models_unused=unused,
    )
