import numpy as np
import pytest

from heliotrope_sim.fleet.lengths import CNN_DAILYMAIL, OPEN_ORCA
from heliotrope_sim.reproduce.tension.lengths import BUCKETS, calibrated, predicted


@pytest.mark.parametrize(("lengths", "accuracy"), [(CNN_DAILYMAIL, 0.51), (OPEN_ORCA, 0.37)])
def test_as_many_predictions_are_right_as_asked_for(lengths: object, accuracy: float) -> None:
    _, true = lengths.draw(np.random.default_rng(3), 20_000)  # type: ignore[attr-defined]
    said = predicted(true, lengths, accuracy, seed=4)  # type: ignore[arg-type]
    edges = np.quantile(true, np.arange(1, BUCKETS) / BUCKETS)
    right = (np.searchsorted(edges, said) == np.searchsorted(edges, true)).mean()
    assert right == pytest.approx(accuracy, abs=0.02)


def test_a_better_predictor_has_a_higher_correlation() -> None:
    found = [calibrated(CNN_DAILYMAIL, accuracy) for accuracy in (0.3, 0.5, 0.7)]
    assert [c for c, _ in found] == sorted(c for c, _ in found)
    assert all(beside > accuracy for (_, beside), accuracy in zip(found, (0.3, 0.5, 0.7), strict=True))


def test_the_seed_decides() -> None:
    true = np.array([20, 70, 300], dtype=np.int64)
    assert (predicted(true, CNN_DAILYMAIL, 0.5, 1) == predicted(true, CNN_DAILYMAIL, 0.5, 1)).all()
    assert (predicted(true, CNN_DAILYMAIL, 0.5, 1) != predicted(true, CNN_DAILYMAIL, 0.5, 2)).any()
