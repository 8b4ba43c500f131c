"""Before the first request, every loop of a decision has run once, so that none is compiled while requests wait."""

from functools import partial

import numpy as np
import pytest

from heliotrope.cache import kernel as cache_kernel
from heliotrope.decide import cached_deviation, comparing, consolidated, constraints, kernel, phase_kernel, pricing
from heliotrope.engine.profiles import load
from heliotrope.predict import rows
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.columns import candidates_of
from heliotrope_epp.plugins.pickers.warm_up import warm_up

LOOPS = (
    (kernel, "analytic"),
    (cached_deviation, "add_to_estimates"),
    (cached_deviation, "add_to_prefills"),
    (cache_kernel, "best_plans"),
    (phase_kernel, "prefill_alone"),
    (phase_kernel, "best_partners"),
    (phase_kernel, "add_prefills"),
    (pricing, "add_transfers"),
    (pricing, "write_service"),
    (pricing, "write_prices"),
    (constraints, "check"),
    (comparing, "take_known"),
    (comparing, "keep_near"),
    (comparing, "is_least"),
    (comparing, "first_rows"),
    (rows, "write_request_rows"),
    (consolidated, "write_consolidated"),
    (consolidated, "write_learned"),
)


def test_every_loop_of_a_decision_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    called = set()
    for module, name in LOOPS:
        loop = getattr(module, name)

        def watched(*arguments: object, name: str = name, loop: object = loop) -> object:
            called.add(name)
            return loop(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(module, name, watched)
    warm_up(load("llama-3.1-8b-h100"))
    assert called == {name for _, name in LOOPS}


def test_what_a_filter_leaves_has_the_layout_that_loops_are_compiled_for() -> None:
    """numba compiles anew for columns that do not lie in one piece."""
    states = [EndpointState(Endpoint(f"e{i}", "", "", i), Traits()) for i in range(4)]
    options = Options.at(states, [0.0] * 4, now_s=0.0, stale_after_s=1.0).kept([0, 2])
    candidates = candidates_of(options, np.zeros(2), {})
    columns = [
        value for value in map(partial(getattr, candidates), candidates.__slots__) if isinstance(value, np.ndarray)
    ]
    assert len(columns) > 20
    assert all(column.flags.c_contiguous for column in columns)
