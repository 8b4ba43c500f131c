"""The compiled walk says what LightGBM says, to the last bit; texts that could lead it astray are refused."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import lightgbm
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope.predict.forest import WORD_LEAVES, Forest, InvalidModelError, joined, parse_forest
from heliotrope.predict.walk import walk

NAMES = ("a", "b", "c", "d")
SPECIAL = [
    float("nan"),
    0.0,
    -0.0,
    1e-36,
    -1e-36,
    1e-34,
    -0.5,
    -1.0,
    -7.0,
    0.5,
    31.0,
    32.0,
    4095.0,
    5000.0,
    3e9,
    -3e9,
    1e300,
]


@cache
def trained(
    seed: int, *, missing: bool, zero_as_missing: bool, categorical: bool, leaves: int, trees: int
) -> lightgbm.Booster:
    rng = np.random.default_rng(seed)
    n = 300
    rows = rng.normal(size=(n, 4)).round(1)
    rows[:, 2] = rng.integers(0, 60, n) * 7 % 97
    rows[:, 3] = np.where(rng.random(n) < 0.5, 0.0, rng.normal(size=n))
    labels = rows[:, 0] * rows[:, 1] + (rows[:, 2] % 3) + np.where(rows[:, 3] == 0.0, 2.0, rows[:, 3])
    if missing:
        rows[rng.random((n, 4)) < 0.2] = np.nan
    parameters = {
        "objective": "regression",
        "num_leaves": leaves,
        "min_data_in_leaf": 3,
        "min_data_per_group": 3,
        "cat_smooth": 0.0,
        "zero_as_missing": zero_as_missing,
        "max_cat_to_onehot": 4 if seed % 2 else 100,
        "seed": seed,
        "num_threads": 1,
        "deterministic": True,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(
        rows, labels, feature_name=list(NAMES), categorical_feature=[2] if categorical else [], params={"verbosity": -1}
    )
    return lightgbm.train(parameters, data, num_boost_round=trees)


def walked(forest: Forest, rows: np.ndarray) -> np.ndarray:
    return walk(rows, forest, np.array([0, forest.trees], dtype=np.int32))[0, : len(rows)]


MODELS = st.builds(
    trained,
    st.integers(0, 1),
    missing=st.booleans(),
    zero_as_missing=st.booleans(),
    categorical=st.booleans(),
    leaves=st.sampled_from([2, 31, 32, 33, 90]),
    trees=st.just(5),
)
VALUES = st.sampled_from(SPECIAL) | st.floats(-4, 4).map(lambda x: round(x, 1)) | st.integers(-2, 120).map(float)


@given(MODELS, st.lists(st.tuples(VALUES, VALUES, VALUES, VALUES), min_size=1, max_size=9))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_walk_is_the_boosters_prediction_bit_by_bit(
    booster: lightgbm.Booster, values: list[tuple[float, ...]]
) -> None:
    rows = np.array(values)
    forest = parse_forest(booster.model_to_string(), NAMES)
    np.testing.assert_array_equal(walked(forest, rows), booster.predict(rows, raw_score=True))


def test_every_kind_of_split_was_among_them() -> None:
    text = trained(1, missing=True, zero_as_missing=False, categorical=True, leaves=31, trees=9).model_to_string()
    zero = trained(1, missing=True, zero_as_missing=True, categorical=False, leaves=31, trees=9).model_to_string()
    none = trained(1, missing=False, zero_as_missing=False, categorical=False, leaves=31, trees=9).model_to_string()
    kinds = {int(k) for t in (text, zero, none) for line in re.findall(r"decision_type=(.*)", t) for k in line.split()}
    assert {2, 4, 6, 8, 10} <= kinds  # no missing, zero to the right and left, NaN to the right and left
    assert any(kind & 1 for kind in kinds)


@pytest.mark.parametrize("missing", [False, True])
def test_a_value_at_a_threshold_goes_left_and_so_does_an_unknown_one_that_is_read_as_zero(missing: bool) -> None:
    text = trained(0, missing=missing, zero_as_missing=False, categorical=False, leaves=31, trees=1).model_to_string()
    # Of few digits, because LightGBM reads longer ones from its own text to the last bit but one.
    thresholds = ["0", "0.5", "-0.25", "1.5"]
    text = first_numbers(text, "threshold", {i: thresholds[i % 4] for i in range(30)})
    rows = np.random.default_rng(1).choice([*map(float, thresholds), np.nan], size=(200, 4))
    text, end, _ = text.partition("\nend of trees\n")
    text = re.sub("\ntree_sizes=.*", "", text)  # LightGBM then finds the changed trees itself
    expected = lightgbm.Booster(model_str=text + end).predict(rows, raw_score=True)
    np.testing.assert_allclose(walked(parse_forest(text + end, NAMES), rows), expected, rtol=1e-12)


def test_a_tree_of_one_leaf_is_a_constant() -> None:
    data = lightgbm.Dataset(np.zeros((50, 4)), np.full(50, 3.0), feature_name=list(NAMES), params={"verbosity": -1})
    booster = lightgbm.train({"objective": "regression", "verbosity": -1, "num_threads": 1}, data, num_boost_round=1)
    forest = parse_forest(booster.model_to_string(), NAMES)
    rows = np.ones((5, 4))
    np.testing.assert_array_equal(walked(forest, rows), booster.predict(rows))


def test_joined_forests_answer_as_each_alone() -> None:
    boosters = [
        trained(s, missing=True, zero_as_missing=s == 2, categorical=s != 2, leaves=7, trees=5 + s) for s in (1, 2, 3)
    ]
    forests = [parse_forest(booster.model_to_string(), NAMES) for booster in boosters]
    forest, begins = joined(forests)
    rows = np.random.default_rng(0).choice([*SPECIAL, 1.0, 14.0, 21.0, 35.0], size=(33, 4))
    sums = walk(rows, forest, begins)
    assert sums.shape == (3, 33)
    for line, booster in zip(sums, boosters, strict=True):
        np.testing.assert_array_equal(line, booster.predict(rows, raw_score=True))


GOOD = trained(1, missing=True, zero_as_missing=False, categorical=True, leaves=7, trees=3).model_to_string()


def first_numbers(text: str, name: str, change: dict[int, str]) -> str:
    """The text with some numbers of the first tree's line replaced."""
    line = re.search(rf"^{name}=(.*)$", text[text.index("Tree=0") :], re.MULTILINE)
    assert line is not None
    numbers = line[1].split(" ")
    for index, value in change.items():
        numbers[index] = value
    return text.replace(f"{name}={line[1]}", f"{name}={' '.join(numbers)}", 1)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "model"),
        ("tree", "model"),
        (GOOD[: len(GOOD) // 3], "model"),
        (GOOD.replace("version=v4", "version=v3"), "version"),
        (GOOD.replace("num_class=1", "num_class=3"), "num_class"),
        (GOOD.replace("objective=regression", "objective=binary sigmoid:1"), "objective"),
        (GOOD.replace("feature_names=a b", "feature_names=b a"), "feature_names"),
        (GOOD.replace("\nTree=1\n", "\nTree=2\n"), "tree[1]"),
        (GOOD.replace("\nversion=v4", "\nversion=v4\naverage_output"), "average_output"),
        (GOOD.replace("is_linear=0", "is_linear=1", 1), "is_linear"),
        (GOOD.replace("num_leaves=7", "num_leaves=8", 1), "leaf_value"),
        (GOOD.replace("num_leaves=7", "num_leaves=0", 1), "num_leaves"),
        (GOOD.replace("num_leaves=7", "num_leaves=1e99", 1), "num_leaves"),
        (GOOD.replace("num_leaves=7", "num_leaves=nan", 1), "num_leaves"),
        (GOOD.replace("num_leaves=7", "num_leaves=x", 1), "num_leaves"),
        (GOOD.replace("num_leaves=7", "num_leaves=7\nnum_leaves=7", 1), "num_leaves"),
        (first_numbers(GOOD, "split_feature", {0: "4"}), "split_feature"),
        (first_numbers(GOOD, "split_feature", {0: "-1"}), "split_feature"),
        (first_numbers(GOOD, "split_feature", {0: "0.5"}), "split_feature"),
        (first_numbers(GOOD, "threshold", {1: "nan"}), "threshold"),
        (first_numbers(GOOD, "threshold", {1: "inf"}), "threshold"),
        (first_numbers(GOOD, "decision_type", {1: "14"}), "decision_type"),
        (first_numbers(GOOD, "decision_type", {1: "-1"}), "decision_type"),
        (first_numbers(GOOD, "leaf_value", {1: "nan"}), "leaf_value"),
        (first_numbers(GOOD, "leaf_value", {1: "1e9"}), "leaf_value"),
        (first_numbers(GOOD, "left_child", {0: "0"}), "tree[0]"),  # the root is its own child
        (first_numbers(GOOD, "left_child", {0: "99"}), "left_child"),
        (first_numbers(GOOD, "left_child", {0: "-99"}), "left_child"),
        (first_numbers(GOOD, "right_child", {0: "-1"}), "tree[0]"),  # a leaf with two parents
        (first_numbers(GOOD, "cat_boundaries", {1: "9999"}), "cat_boundaries"),
        (first_numbers(GOOD, "cat_boundaries", {1: "0"}), "cat_boundaries"),
        (first_numbers(GOOD, "cat_threshold", {0: "4294967296"}), "cat_threshold"),
        (re.sub("num_cat=[1-9]", "num_cat=0", GOOD, count=1), "threshold"),
        (re.sub("cat_threshold=.*\n", "", GOOD, count=1), "cat_threshold"),
    ],
)
def test_poisoned_texts_are_refused_and_name_the_field(text: str, field: str) -> None:
    with pytest.raises(InvalidModelError) as caught:
        parse_forest(text, NAMES)
    assert isinstance(caught.value, InvalidInputError)
    assert caught.value.path.endswith(field)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_no_change_of_a_text_crashes_or_hangs_the_walk(data: st.DataObject) -> None:
    """Whatever is still accepted is walked, within bounds and to an end."""
    text = list(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(st.sampled_from("0123456789-. =\nen"))
    try:
        forest = parse_forest("".join(text), NAMES)
    except InvalidModelError:
        return
    assert forest.questions_end[-1] == len(forest.column)
    assert forest.words_end[-1] * WORD_LEAVES == len(forest.value)
    assert forest.column.max() < forest.width + len(forest.source)
    assert np.isfinite(walked(forest, np.array([[np.nan] * 4, [0.0] * 4, [50.0] * 4]))).all()


def test_cut_anywhere_before_its_end_a_text_is_refused() -> None:
    end = GOOD.index("end of trees")
    for length in range(0, end, 97):
        with pytest.raises(InvalidModelError):
            parse_forest(GOOD[:length], NAMES)


PROGRAM = """
import numba, numpy as np
from heliotrope.predict import walk
numba_njit = numba.njit
def njit(*arguments, **options):
    if options.get("cache"):
        raise RuntimeError("cannot cache function: no locator available for file")
    return numba_njit(*arguments, **options)
numba.njit = njit
walk.warm_up()
print("compiled")
"""


@pytest.mark.slow
def test_without_a_folder_for_the_cache_it_compiles_all_the_same(tmp_path: Path) -> None:
    where = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "file")}
    (tmp_path / "file").write_text("a file, so no folder can be made")
    for program in (PROGRAM, "from heliotrope.predict import walk; walk.warm_up(); print('compiled')"):
        done = subprocess.run([sys.executable, "-c", program], env=where, capture_output=True, text=True, check=False)
        assert done.stdout == "compiled\n", done.stderr[-2000:]
