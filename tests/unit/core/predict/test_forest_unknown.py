"""A split of what is known from what is unknown has no bound; LightGBM writes it as inf."""

import lightgbm
import numpy as np
import pytest

from heliotrope.predict.forest import InvalidModelError, parse_forest
from heliotrope.predict.walk import walk


def test_a_split_on_being_known_is_read_and_walked_as_the_booster_does() -> None:
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((400, 1)) < 0.5, np.nan, rng.random((400, 1)))
    labels = np.where(np.isnan(rows[:, 0]), 1.0, 2.0)
    data = lightgbm.Dataset(rows, labels, feature_name=["x"])
    booster = lightgbm.train({"verbosity": -1, "min_data_in_leaf": 5}, data, num_boost_round=3)
    text, end, _ = booster.model_to_string().partition("\nend of trees\n")
    assert "threshold=inf" in text, "the case this test is about"
    forest = parse_forest(text + end, ["x"])
    walked = walk(rows, forest, np.array([0, forest.trees], dtype=np.int32))[0, : len(rows)]
    np.testing.assert_allclose(walked, booster.predict(rows))
    for bad in ("-inf", "nan"):
        with pytest.raises(InvalidModelError, match="threshold"):
            parse_forest(text.replace("threshold=inf", f"threshold={bad}") + end, ["x"])
