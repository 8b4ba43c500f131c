"""One kind of model behind all plans of a decision."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.decide.pools import ENGINE, NOW, POLICY, THREE, pool
from tests.unit.core.decide.test_learned import Answers
from tests.unit.core.decide.test_phases import LONG, busy, idle, paired

from heliotrope.decide import recorded
from heliotrope.decide.candidates import Candidates
from heliotrope.decide.decision import decide
from heliotrope.decide.estimate import estimate
from heliotrope.decide.losses import Loss
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.targets import Target
from heliotrope_cli.explain_text import sentences

LOOSE = replace(POLICY, ttft_slo_seconds=60.0, tpot_slo_seconds=5.0)


def mixed() -> Candidates:
    """Two decode endpoints and a pair, of which the pair is a little dirtier than decoding in place."""
    decode = pool(["a", "a"], THREE, running=[4.0, 20.0], waiting=[0.0, 2.0], waiting_tokens=[0.0, 9_000.0])
    candidates = paired(decode, idle(["a"]), policy=LOOSE)
    assert candidates.pairs is not None
    return candidates


def believed(factor: float) -> Answers:
    """Models that find every endpoint worse than its profile says, by a factor."""
    e = estimate(LONG, mixed(), LOOSE, NOW)
    first = mixed().aggregated_count
    return Answers(
        {
            Target.TTFT: (e.ttft_seconds * factor)[:first],
            Target.TPOT: (e.tpot_seconds * factor)[:first],
            Target.REQUEST_ENERGY: (e.energy_joules * factor)[:first],
        }
    )


@pytest.mark.parametrize("factor", [0.2, 1.5, 3.0])
def test_what_profiles_forget_does_not_favour_pairs_nor_single_endpoints(factor: float) -> None:
    models = believed(factor)
    without, with_models = (decide(LONG, mixed(), LOOSE, NOW, models=m) for m in (None, models))
    assert with_models.winner == without.winner
    assert with_models.losses == without.losses
    assert with_models.estimates.learned == {}
    sources = {s for c in with_models.explanation()["candidates"] for s in c["sources"].values()}
    assert sources == {"analytic"}
    if factor > 1.0:
        # Compared as they come, what the models know of one place would have split the prompt.
        first, grams = mixed().aggregated_count, without.estimates.grams_co2e
        assert grams[:first].min() < grams[first:].min() < factor * grams[:first].min()


@given(st.lists(st.floats(0.01, 100.0), min_size=3, max_size=3))
@settings(max_examples=40, deadline=None)
def test_no_answer_of_models_moves_a_decision_that_holds_pairs(factors: list[float]) -> None:
    models = Answers(dict(zip((Target.TTFT, Target.TPOT, Target.REQUEST_ENERGY), factors, strict=True)))
    without, with_models = (decide(LONG, mixed(), LOOSE, NOW, models=m) for m in (None, models))
    assert (with_models.winner, with_models.losses) == (without.winner, without.losses)
    np.testing.assert_array_equal(with_models.estimates.ttft_seconds, without.estimates.ttft_seconds)


def test_without_pairs_models_answer() -> None:
    models = Answers({Target.TPOT: 0.02})
    decision = decide(LONG, pool(["a", "b"], THREE), LOOSE, NOW, models=models)
    assert decision.estimates.learned[Target.TPOT].all()
    assert decision.explanation()["models_unused"] is None
    for none in (None, LearnedModels()):
        assert decide(LONG, mixed(), LOOSE, NOW, models=none).explanation()["models_unused"] is None


def test_an_endpoint_that_models_alone_know_is_unknown_beside_pairs() -> None:
    models = Answers({Target.TTFT: 0.2, Target.TPOT: 0.02, Target.REQUEST_ENERGY: 10.0})
    decode = pool(["c", "a"], THREE, engines=[ENGINE, None], running=[28.0, 0.0], waiting=[4.0, 0.0])
    alone = decide(LONG, decode, LOOSE, NOW, models=models)
    assert alone.losses[1] is not Loss.UNKNOWN
    candidates = paired(decode, idle(["a"]), policy=LOOSE)
    assert candidates.pairs is not None
    beside = decide(LONG, candidates, LOOSE, NOW, models=models)
    assert beside.losses[1] is Loss.UNKNOWN


def test_it_is_explained() -> None:
    candidates = paired(busy(), idle(), policy=LOOSE)
    decision = decide(LONG, candidates, LOOSE, NOW, models=Answers({Target.TPOT: 0.02}))
    said = decision.explanation()
    assert said["models_unused"].startswith("pairs of endpoints are estimated by engine models alone")
    told = sentences(recorded.read(json.dumps(said))[0])
    assert any(line.startswith("Learned models were not asked: pairs of endpoints") for line in told)
