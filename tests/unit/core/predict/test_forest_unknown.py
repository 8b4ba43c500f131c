"""A split of what is known from what is unknown has no bound; LightGBM writes it as inf."""

import re

import lightgbm
import numpy as np
import pytest

from heliotrope.predict.forest import InvalidModelError, parse_forest
from heliotrope.predict.walk import walk


def test_a_split_on_being_known_is_read_and_walked() -> None:
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((400, 1)) < 0.5, np.nan, rng.random((400, 1)))
    labels = np.where(np.isnan(rows[:, 0]), 1.0, 2.0)
    data = lightgbm.Dataset(rows, labels, feature_name=["x"])
    booster = lightgbm.train({"verbosity": -1, "num_leaves": 2}, data, num_boost_round=1)
    text, end, _ = booster.model_to_string().partition("\nend of trees\n")
    # Known below some number and unknown above it, or the other way round: LightGBM writes either.
    unbounded = re.sub("threshold=.*", "threshold=inf", re.sub("decision_type=.*", "decision_type=8", text))
    forest = parse_forest(unbounded + end, ("x",))
    walked = walk(rows, forest, np.array([0, forest.trees], dtype=np.int32))[0, : len(rows)]
    known = ~np.isnan(rows[:, 0])
    assert len(set(walked[known])) == len(set(walked[~known])) == 1
    assert walked[known][0] != walked[~known][0]
    for bad in ("-inf", "nan"):
        with pytest.raises(InvalidModelError, match="threshold"):
            parse_forest(re.sub("threshold=.*", f"threshold={bad}", text) + end, ("x",))
