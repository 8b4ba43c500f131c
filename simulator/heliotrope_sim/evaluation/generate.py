"""All runs of an evaluation: every endpoint at every load, for training and, with other seeds and loads, held out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope_sim.evaluation.fleet import SweptEndpoint
from heliotrope_sim.evaluation.lengths import draw, load_lengths
from heliotrope_sim.evaluation.regimes import Regime, regime
from heliotrope_sim.evaluation.sweep import RunResult, saturated_rate, sweep_run
from heliotrope_sim.evaluation.view import ViewFactory

CAPACITY_REQUESTS = 400
TWO_PICKERS_SHARE = 0.6
"""Share of the arrivals that is ours in the runs that another picker takes part in: every fourth."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run to make."""

    endpoint: SweptEndpoint
    load: float
    capacity_per_second: float
    count: int
    own_share: float
    twin_every: int
    seed: tuple[int, ...]


def capacities(endpoints: Sequence[SweptEndpoint], seed: int) -> dict[str, float]:
    """Measured requests per second by the endpoint's name."""
    lengths = load_lengths()
    return {
        e.name: saturated_rate(e, draw(lengths, np.random.default_rng([seed, 2])), CAPACITY_REQUESTS) for e in endpoints
    }


def plans(
    endpoints: Sequence[SweptEndpoint],
    capacity: dict[str, float],
    loads: Sequence[float],
    *,
    count: int,
    seed: int,
    stream: int,
    twin_every: int = 0,
) -> list[Plan]:
    """Runs of every endpoint at every load.

    Args:
        endpoints: what to run.
        capacity: of each, by name.
        loads: utilisations.
        count: requests in each run.
        seed: of everything.
        stream: keeps training apart from what is held out: equal seeds give other arrivals in another stream.
        twin_every: every so many requests below saturation one gets twins (`floor`); 0: none does.
    """
    return [
        Plan(
            endpoint=endpoint,
            load=load,
            capacity_per_second=capacity[endpoint.name],
            count=count,
            twin_every=twin_every if regime(load) is Regime.BELOW else 0,
            own_share=TWO_PICKERS_SHARE if (i + j) % 4 == 3 else 1.0,
            seed=(seed, stream, i, j),
        )
        for i, endpoint in enumerate(endpoints)
        for j, load in enumerate(loads)
    ]


def generate(
    planned: Sequence[Plan],
    lengths: Mapping[str, NDArray[np.int64]],
    view: ViewFactory,
    done: Callable[[], None],
) -> list[RunResult]:
    """Make the runs, one after the other, with lengths drawn from these; `done` is called after each."""
    results = []
    for plan in planned:
        lengths_rng, arrivals_rng = (np.random.default_rng([*plan.seed, k]) for k in (0, 1))
        results.append(
            sweep_run(
                plan.endpoint,
                arrivals=draw(lengths, lengths_rng),
                count=plan.count,
                rate_per_second=plan.load * plan.capacity_per_second,
                utilisation=plan.load,
                view=view,
                rng=arrivals_rng,
                own_share=plan.own_share,
                twin_every=plan.twin_every,
                other_futures=lambda rng: draw(lengths, rng),
            )
        )
        done()
    return results
