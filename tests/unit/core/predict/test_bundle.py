import hashlib
import json
import math
from typing import Any

import numpy as np
import pytest

from heliotrope.predict.bundle import EMPTY, FORMAT, Bundle, parse_bundle
from heliotrope.predict.forest import InvalidModelError
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.targets import Target
from heliotrope.predict.training import train
from heliotrope.predict.trainingset import TrainingSet

Sets = tuple[TrainingSet, TrainingSet]


@pytest.fixture(scope="module")
def text() -> str:
    from heliotrope.predict.features import STEP_FEATURE_COUNT
    from heliotrope.predict.targets import STEPS

    rng = np.random.default_rng(0)
    n = 400
    splits = np.repeat([0, 1, 2], [280, 60, 60]).astype(np.uint8)
    rows = rng.random((n, STEP_FEATURE_COUNT))
    labels = np.exp(rows[:, :1])
    return train([TrainingSet(STEPS, rows, labels, np.arange(n, dtype=float), splits)], 1, 123.5).to_text()


def resigned(text: str, head: dict[str, Any] | str | None = None, models: str | None = None) -> str:
    """The text with parts replaced and a digest that fits."""
    old_head, _, old_models = text.split("\n", 2)[2].partition("\n")
    new_head = old_head if head is None else head if isinstance(head, str) else json.dumps(head)
    body = new_head + "\n" + (old_models if models is None else models)
    return f"{FORMAT}\nsha256 {hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def head_of(text: str) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(text.split("\n")[2])
    return head


def test_what_is_written_is_read_back(sets: Sets) -> None:
    bundle = train(sets, seed=1, created_unix_s=9.0)
    again = parse_bundle(bundle.to_text())
    assert again.to_text() == bundle.to_text()
    assert again.digest == bundle.digest
    assert again.created_unix_s == 9.0
    assert again.models.keys() == set(Target)
    rows = sets[0].rows[:50]
    np.testing.assert_array_equal(LearnedModels(again).predict(rows).mean, LearnedModels(bundle).predict(rows).mean)
    np.testing.assert_array_equal(LearnedModels(again).predict(rows).q90, LearnedModels(bundle).predict(rows).q90)
    for target, model in bundle.models.items():
        assert again.models[target].calibration == model.calibration
        assert again.models[target].scores == model.scores


def test_an_empty_bundle_is_one_too() -> None:
    assert parse_bundle(EMPTY.to_text()).models == {}


def test_unknown_scores_stay_unknown(text: str) -> None:
    scores = parse_bundle(text).models[Target.STEP_ENERGY].scores
    assert scores.samples == 60
    head = head_of(text)
    head["models"][0]["coverage"] = None
    assert math.isnan(parse_bundle(resigned(text, head)).models[Target.STEP_ENERGY].scores.coverage)


def test_cut_anywhere_it_is_refused(text: str) -> None:
    for length in range(0, len(text), 131):
        with pytest.raises(InvalidModelError):
            parse_bundle(text[:length])


def test_one_changed_character_is_refused(text: str) -> None:
    at = text.index("leaf_value=") + 12
    changed = text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1 :]
    with pytest.raises(InvalidModelError, match="cut off or was changed"):
        parse_bundle(changed)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"target": "ttft_minutes"}, "target"),
        ({"target": 3}, "target"),
        ({"target": "ttft_seconds"}, "features"),
        ({"features": ["batch"]}, "features"),
        ({"scale": 0.0}, "scale"),
        ({"scale": "1"}, "scale"),
        ({"scale": True}, "scale"),
        ({"scale": 1e300}, "scale"),
        ({"analytic_base": 1}, "analytic_base"),
        ({"mean": [0.0]}, "mean"),
        ({"q90": [0.0, 0.0, 0.0, 1e9]}, "q90[3]"),
        ({"spread": [0.0, 0.0, -0.1, 0.0]}, "spread[2]"),
        ({"q90": None}, "q90"),
        ({"typical": [0.0, 0.0, 0.0, "0"]}, "typical[3]"),
        ({"characters": 10**9}, "characters"),
        ({"characters": 5}, "models[0]"),
        ({"characters": None}, "characters"),
        ({"mape": "x"}, "mape"),
        ({"kinds": None}, "kinds"),
        ({"kinds": [[1.0, 2.0]]}, "kinds[0]"),
        ({"kinds": [[1.0, 2.0, 3.0, 4.0, -5.0]]}, "kinds[0][4]"),
        ({"kinds": [[1.0, 2.0, 3.0, 4.0, 5.0]]}, "coefficients"),
        ({"kinds": [[1.0, 2.0, 3.0, 4.0, 5.0]] * 300}, "kinds"),
        ({"coefficients": [[0.0] * 6 + [-1.0]]}, "coefficients[0][6]"),
        ({"coefficients": [[0.0] * 6 + ["1"]]}, "coefficients[0][6]"),
    ],
)
def test_a_fitting_digest_does_not_make_it_true(text: str, change: dict[str, Any], path: str) -> None:
    head = head_of(text)
    head["models"][0].update(change)
    with pytest.raises(InvalidModelError) as caught:
        parse_bundle(resigned(text, head))
    assert caught.value.path.endswith(path)


@pytest.mark.parametrize(
    "head",
    [
        "",
        "{",
        "[]",
        "3",
        '{"models": []}',
        '{"models": {}, "created_unix_s": 1}',
        '{"models": [3], "created_unix_s": 1}',
        '{"models": [], "created_unix_s": NaN}',
        '{"models": [], "created_unix_s": Infinity}',
        "[" * 100_000,
    ],
)
def test_heads_that_are_none_are_refused(text: str, head: str) -> None:
    with pytest.raises(InvalidModelError):
        parse_bundle(resigned(text, head, ""))


def test_the_same_target_twice_and_text_behind_the_last_are_refused(text: str) -> None:
    head, models = head_of(text), text.split("\n", 2)[2].partition("\n")[2]
    twice = {**head, "models": head["models"] * 2}
    with pytest.raises(InvalidModelError, match="twice"):
        parse_bundle(resigned(text, twice, models * 2))
    with pytest.raises(InvalidModelError, match="behind the last"):
        parse_bundle(resigned(text, None, models + "x"))


def test_other_formats_are_refused(text: str) -> None:
    with pytest.raises(InvalidModelError, match="must begin with"):
        parse_bundle(text.replace("heliotrope-models 1", "heliotrope-models 2", 1))


def test_the_digest_names_the_content() -> None:
    assert Bundle(1.0, {}).digest != Bundle(2.0, {}).digest
