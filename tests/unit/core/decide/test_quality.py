"""Which models may answer: equation 3, reasoning efforts, and what is unknown."""

import math
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.decide.quality import (
    NAN,
    Group,
    Level,
    Lower,
    Member,
    ModelRules,
    ModelVerdict,
    Prediction,
    Predictor,
    judge,
    meets_floor,
)
from heliotrope.predict.reasoning import UNSAID, Effort, Reasoning

QUALITY = st.one_of(st.just(NAN), st.floats(0.0, 1.0))
COLUMN = st.lists(st.tuples(QUALITY, st.booleans()), min_size=1, max_size=8)
LEVELS = (
    Level(Effort.LOW, 0.4, 0.9),
    Level(Effort.MEDIUM, 0.7, 0.96),
    Level(Effort.HIGH, 1.5, 1.02),
)
LARGE = Member("large", "large", levels=LEVELS)
SMALL = Member("small", "small")
CHAT = Group("large", (SMALL, LARGE))
BOTH = frozenset({"large", "small"})


def rules(**changes: object) -> ModelRules:
    return ModelRules(groups={CHAT.name: CHAT}, **changes)  # type: ignore[arg-type]


def predicted(**quality: float) -> Prediction:
    return Prediction(quality, Predictor.TABLE, "chat")


def verdict(
    prediction: Prediction, reasoning: Reasoning = UNSAID, serving: frozenset[str] = BOTH, **changes: object
) -> ModelVerdict:
    judged = judge(CHAT, rules(**changes), prediction, serving, reasoning)
    assert judged is not None
    return judged


@given(COLUMN, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_higher_floor_never_lets_more_models_in(rows: list[tuple[float, bool]], one: float, other: float) -> None:
    quality, available = np.array([q for q, _ in rows]), np.array([a for _, a in rows])
    loose, _ = meets_floor(quality, available, min(one, other))
    strict, _ = meets_floor(quality, available, max(one, other))
    assert not (strict & ~loose).any()


@given(QUALITY, QUALITY, st.sampled_from([BOTH, frozenset({"large"})]))
def test_withheld_rules_leave_the_default_as_it_was_asked_for(
    large: float, small: float, serving: frozenset[str]
) -> None:
    judged = verdict(predicted(large=large, small=small), serving=serving, lower=Lower.ALWAYS, withheld="no label")
    assert judged.serving() == {"large"}
    assert judged.at("small") is None
    choice = judged.choice("large")
    assert choice is not None
    assert (choice.model, choice.downgraded, choice.judged.effort) == ("large", False, None)


def test_withheld_rules_put_no_other_member_in_the_place_of_a_default_that_nobody_serves() -> None:
    withheld = rules(withheld="no label")
    assert judge(CHAT, withheld, predicted(large=0.9, small=0.9), frozenset({"small"}), UNSAID) is None


@given(COLUMN, st.floats(0.0, 1.0))
def test_the_best_passes_and_the_unknown_and_unavailable_never_do(rows: list[tuple[float, bool]], floor: float) -> None:
    quality, available = np.array([q for q, _ in rows]), np.array([a for _, a in rows])
    passes, least = meets_floor(quality, available, floor)
    assert not passes[np.isnan(quality) | ~available].any()
    known = available & np.isfinite(quality)
    if not known.any():
        assert not passes.any()
        assert math.isnan(least)
        return
    assert passes[int(np.argmax(np.where(known, quality, -1.0)))]
    assert passes.tolist() == [k and q >= floor * quality[known].max() for k, q in zip(known, quality, strict=True)]


@given(QUALITY, QUALITY, st.sets(st.sampled_from(["large", "small", "other"])), st.floats(0.0, 1.0))
def test_something_served_is_always_left(large: float, small: float, serving: set[str], floor: float) -> None:
    judged = judge(CHAT, rules(floor=floor), predicted(large=large, small=small), frozenset(serving), UNSAID)
    assert (judged is None) == (not serving & BOTH)
    if judged is not None:
        assert judged.serving()
        assert judged.serving() <= serving


def test_models_near_the_best_may_answer_and_the_choice_says_why() -> None:
    near = verdict(predicted(large=0.8, small=0.7))
    assert near.serving() == BOTH
    small = near.choice("small")
    assert small is not None
    assert (small.model, small.downgraded, small.why) == ("small", True, "quality 0.7 of at least 0.68")
    large = near.choice("large")
    assert large is not None
    assert not large.downgraded
    far = verdict(predicted(large=0.8, small=0.6))
    assert far.serving() == {"large"}
    assert far.choice("small") is None


def test_without_any_known_quality_the_default_answers_and_next_to_it_what_is_served() -> None:
    assert verdict(predicted()).serving() == {"large"}
    assert verdict(predicted(), serving=frozenset({"small"})).serving() == {"small"}
    assert verdict(predicted(small=0.2)).serving() == {"small"}  # the default's is unknown, so it is out


def test_the_best_is_taken_among_those_that_are_served() -> None:
    assert verdict(predicted(large=0.9, small=0.5), serving=frozenset({"small"})).serving() == {"small"}


def test_of_several_members_at_one_endpoint_the_best_answers() -> None:
    group = Group("base", (Member("base", "base"), Member("adapter", "base")))
    judged = judge(group, rules(), predicted(base=0.8, adapter=0.9), frozenset({"base"}), UNSAID)
    assert judged is not None
    choice = judged.choice("base")
    assert choice is not None
    assert choice.model == "adapter"


def test_effort_is_lowered_as_far_as_the_floor_and_the_policy_let_it() -> None:
    def effort(floor: float = 0.85, lower: Lower = Lower.UNSAID, **said: object) -> Effort | None:
        judged = verdict(predicted(large=0.8), Reasoning(**said), floor=floor, lower=lower)  # type: ignore[arg-type]
        return judged.models[1].effort

    assert effort() is Effort.LOW
    assert effort(floor=0.95) is Effort.MEDIUM
    assert effort(floor=0.97) is None
    assert effort(lower=Lower.NEVER) is None
    assert effort(effort=Effort.HIGH) is None
    assert effort(effort=Effort.HIGH, lower=Lower.ALWAYS) is Effort.LOW
    assert effort(effort=Effort.LOW, lower=Lower.ALWAYS) is None
    assert effort(effort=Effort.MAX, lower=Lower.ALWAYS) is None  # not listed: nobody knows what lowering it does
    assert effort(budget_tokens=100, lower=Lower.ALWAYS) is None
    strict = verdict(predicted(large=0.8), lower=Lower.UNSAID, lowest=Effort.MEDIUM)
    assert strict.models[1].effort is Effort.MEDIUM
    assert strict.models[1].output_share == 0.7


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=5), st.sampled_from([None, *Effort]))
def test_effort_never_rises_with_a_lower_floor_nor_above_what_was_asked(
    floors: list[float], asked: Effort | None
) -> None:
    found = []
    for floor in sorted(floors, reverse=True):
        judged = verdict(predicted(large=0.8), Reasoning(asked), floor=floor, lower=Lower.ALWAYS).models[1]
        assert judged.effort is None or asked is None or judged.effort < asked
        assert judged.output_share <= 1.0
        found.append(judged.output_share)
    assert all(strict >= loose for strict, loose in pairwise(found))


def test_a_group_holds_for_its_name_and_the_classes_that_the_policy_lists() -> None:
    assert rules().group_for("large", None) is CHAT
    assert rules().group_for("small", None) is None
    limited = rules(classes=frozenset({"batch"}))
    assert limited.group_for("large", "batch") is CHAT
    assert limited.group_for("large", None) is None


def test_the_document_is_plain_and_unknown_is_null() -> None:
    document = verdict(predicted(large=0.8)).document()
    assert document["models"][0] == {
        "model": "small",
        "served_by": "small",
        "quality": None,
        "available": True,
        "allowed": False,
        "effort": None,
    }
    assert document["least_quality"] == 0.85 * 0.8
