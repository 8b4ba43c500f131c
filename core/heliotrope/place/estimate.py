"""What each request would take and draw in each region (paper carbon-slo-tension, §IV): all schedulers share it.

    TTFT = waited + RTT + dispatch + W_d + t_pre(ISL + Q_d)
    TPOT = [t_dec(B_d + 1, KV_d) + T_pre] / (1 − duty_d)
    c    = CI_d · PUE_d · (marginal prefill and decode energy)

W_d is the wait for departures of running sequences where the engine's slots or KV memory are full. T_pre is the prefill
of what is queued, shared over the request's answer. B_d and KV_d count what is queued, too: the queue is in the batch
by the time that the request is. Marginal energy is what the request adds to a batch that runs; what it adds besides
where it finds an engine idle is apart (`activation_cost`), because schedulers differ in who pays it: the additive ones
charge it to every request, the facility program once per region (`wake_cost`).

Unknown:

- The length of an answer: `PlacementPolicy.unknown_output_tokens` in its place.
- Step model, load, duty, round trip: TTFT and TPOT are NaN and the region is not feasible; it is possible all the same,
  after every region that is known.
- Engines: likewise. No engine at all: the region is not possible.
- Batch capacity: the engine's own limit in its place. Both, or the load: no headroom.
- The intensity or the PUE of a region that some request may go to: carbon counts for none (`carbon_counts`), and the
  cost is joules.

Wherever a pair is feasible its cost, activation cost and wake cost are finite.
"""

from dataclasses import dataclass

import numpy as np

from heliotrope.engine.coefficients import Coefficient
from heliotrope.place.policy import CapacityUnit, PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.state import state_of
from heliotrope.place.window import BoolMatrix, FloatColumn, FloatMatrix, Window


@dataclass(frozen=True, slots=True)
class Estimates:
    """Matrices of shape (n, d), columns of length n or d. NaN is unknown."""

    output_tokens: FloatColumn
    """Length n: expected, unknown ones replaced, at least 1."""
    ttft_seconds: FloatMatrix
    tpot_seconds: FloatMatrix
    latency_seconds: FloatMatrix
    """TTFT + OSL · TPOT."""
    joules: FloatMatrix
    """What the request adds to a batch that runs, without host and PUE."""
    cost: FloatMatrix
    """c: grams of `joules` behind the PUE; joules where carbon does not count."""
    activation_cost: FloatMatrix
    """Of the same unit: expected beside `cost` because an idle engine starts to run for this request alone."""
    possible: BoolMatrix
    """Allowed, up, and its KV cache would ever fit. Never relaxed."""
    feasible: BoolMatrix
    """Possible, and both latencies are known and within the SLO."""
    weights: FloatColumn
    """Length n: what the request takes of a headroom, in the policy's capacity unit."""
    slots: FloatColumn
    """Free batch slots, length d, whole numbers: engines × capacity − active; 0 where unknown."""
    headroom: FloatColumn
    """H_d in the policy's capacity unit, 0 where unknown: slots, or free KV tokens, as far as TPOT stays within the
    tightest SLO among the window's feasible requests when they are filled, and as the largest share leaves room."""
    wake_cost: FloatColumn
    """f_d, of the unit of `cost`: what the rise of the region's idle engines to a running batch draws in a window."""
    carbon_counts: bool


def estimate(window: Window, regions: Regions, policy: PlacementPolicy) -> Estimates:
    """Estimate every pair.

    Raises:
        ValueError: if the window's matrices have not one column per region.
    """
    from heliotrope.place.estimate_kernel import write_estimates
    from heliotrope.place.kernel import TERMS

    n, d = len(window), len(regions)
    if window.cached_tokens.shape != (n, d) or window.allowed.shape != (n, d):
        raise ValueError(f"the window's matrices must have shape {(n, d)}, not {window.cached_tokens.shape}")
    matrices, flags = np.empty((6, n, d)), np.empty((2, n, d), dtype=np.bool_)
    requests, columns = np.empty((2, n)), np.empty((3, d))
    counts = write_estimates(
        regions.engine_rows,
        state_of(regions),
        np.empty((TERMS, d)),
        window.prompt_tokens,
        window.output_tokens,
        window.waited_seconds,
        window.ttft_slo_seconds,
        window.tpot_slo_seconds,
        window.cached_tokens,
        window.allowed,
        policy.standard_deviations,
        policy.unknown_output_tokens,
        policy.window_seconds,
        policy.capacity_unit is CapacityUnit.TOKENS,
        matrices,
        flags,
        requests,
        columns,
    )
    ttft, tpot, latency, joules, cost, activation_cost = matrices
    return Estimates(
        output_tokens=requests[0],
        ttft_seconds=ttft,
        tpot_seconds=tpot,
        latency_seconds=latency,
        joules=joules,
        cost=cost,
        activation_cost=activation_cost,
        possible=flags[0],
        feasible=flags[1],
        weights=requests[1],
        slots=columns[0],
        headroom=columns[1],
        wake_cost=columns[2],
        carbon_counts=counts,
    )


def expected_output_tokens(window: Window, policy: PlacementPolicy) -> FloatColumn:
    """`Estimates.output_tokens` alone."""
    tokens = np.where(np.isnan(window.output_tokens), policy.unknown_output_tokens, window.output_tokens)
    return np.maximum(tokens, 1.0)


def possible_pairs(window: Window, regions: Regions, policy: PlacementPolicy) -> BoolMatrix:
    """`Estimates.possible` alone."""
    kv_capacity = regions.engine_rows[:, Coefficient.KV_CAPACITY_TOKENS]
    never_fits = (window.prompt_tokens + expected_output_tokens(window, policy))[:, None] > kv_capacity
    pairs: BoolMatrix = window.allowed & ~(regions.engines <= 0.0) & ~never_fits
    return pairs


def carbon_counts(window: Window, regions: Regions) -> bool:
    """`Estimates.carbon_counts` alone."""
    candidate = window.allowed.any(axis=0) & ~(regions.engines <= 0.0)
    known = np.isfinite(regions.intensity_g_per_kwh) & np.isfinite(regions.pue)
    return bool((known | ~candidate).all())


def cost_of_a_joule(window: Window, regions: Regions) -> FloatColumn:
    """What `Estimates.cost` takes for one joule of IT energy in each region."""
    from heliotrope.place.kernel import PER_JOULE, TERMS, cost_per_joule

    terms = np.empty((TERMS, len(regions)))
    cost_per_joule(state_of(regions), window.allowed, terms)
    column: FloatColumn = terms[PER_JOULE]
    return column
