"""The paper's measured anchors: the A100 profile, fitted to other measurements, comes near them (§V-B)."""

import pytest
from bench.engine_calibration import anchors

from heliotrope.engine import profiles


@pytest.mark.slow
def test_three_engines_serve_as_the_paper_measured() -> None:
    engine = profiles.load("llama-3.1-8b-a100-40gb")
    unloaded, overloaded = anchors.serve(engine, 2.0), anchors.serve(engine, 50.0)
    assert overloaded.completed_per_second == pytest.approx(27.58, rel=0.15)
    assert unloaded.mean_tpot == pytest.approx(0.0155, rel=0.1)
    assert overloaded.mean_tpot == pytest.approx(0.054, rel=0.1)
    assert unloaded.mean_ttft == pytest.approx(0.071, rel=0.15)
    assert overloaded.longest_ttft > 20.0
