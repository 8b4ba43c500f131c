"""Before the first request, every loop of a decision has run once, so that none is compiled while requests wait."""

import pytest

from heliotrope.cache import kernel as cache_kernel
from heliotrope.decide import kernel, phase_kernel
from heliotrope.engine.profiles import load
from heliotrope_epp.plugins.pickers.warm_up import warm_up

LOOPS = (
    (kernel, "analytic"),
    (cache_kernel, "best_plans"),
    (phase_kernel, "prefill_alone"),
    (phase_kernel, "best_partners"),
    (phase_kernel, "add_prefills"),
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
