"""Compiles what windows run before the first one comes."""

from collections.abc import Mapping

import numpy as np

from heliotrope.engine import profiles
from heliotrope.engine.coefficients import coefficients
from heliotrope.place.assignment import Scheduler
from heliotrope.place.estimate import estimate
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.schedulers.greedy import greedy
from heliotrope.place.schedulers.least_loaded import least_loaded
from heliotrope.place.window import NO_HOME, Window
from heliotrope_epp.region.beliefs import Beliefs


def warm_up() -> None:
    """Assign a window of nobody; takes seconds the first time on a machine, and is meant for a thread."""
    window, regions, policy = _window(), _regions(), PlacementPolicy()
    estimate(window, regions, policy)
    places = greedy(window, regions, policy, 0.0).regions
    least_loaded(window, regions, policy, 0.0)
    beliefs = Beliefs(2)
    serials = beliefs.sent(window, regions, policy, places, 1.0)
    beliefs.ended(serials[0], 2.0)
    beliefs.warm_up(regions)


def warm_up_solvers(schedulers: Mapping[str, Scheduler]) -> None:
    """Compile what schedulers run: each assigns a window of nobody, and another on what it remembers."""
    window, regions = _window(), _regions()
    for scheduler in schedulers.values():
        memory = None
        for _ in range(2):
            memory = scheduler(window, regions, PlacementPolicy(), 0.0, memory).memory


def _window() -> Window:
    return Window(
        prompt_tokens=np.array([100.0, 200.0]),
        output_tokens=np.array([10.0, np.nan]),
        waited_seconds=np.zeros(2),
        ttft_slo_seconds=np.array([1.0, np.inf]),
        tpot_slo_seconds=np.array([0.1, np.inf]),
        cached_tokens=np.zeros((2, 2)),
        allowed=np.ones((2, 2), dtype=np.bool_),
        home=np.full(2, NO_HOME, dtype=np.int64),
    )


def _regions() -> Regions:
    engine = coefficients(profiles.load(profiles.available()[0]))

    def both(value: float) -> "np.typing.NDArray[np.float64]":
        return np.full(2, value)

    return Regions(
        names=("a", "b"),
        engine_rows=np.tile(engine, (2, 1)),
        engines=both(2.0),
        batch_capacity=both(8.0),
        running=both(1.0),
        waiting=both(0.0),
        waiting_tokens=both(0.0),
        kv_tokens=both(100.0),
        prefill_duty=both(0.1),
        idle_engines=both(1.0),
        intensity_g_per_kwh=np.array([100.0, 200.0]),
        pue=both(1.2),
        rtt_seconds=both(0.0),
        dispatch_seconds=both(0.0),
        age_seconds=both(0.0),
        largest_share=both(1.0),
        recent_share=both(np.nan),
    )
