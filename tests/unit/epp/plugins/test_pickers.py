"""What the configured pickers choose, and their fallbacks."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.epp.plugins.builders import NOW_UNIX_S, option, request, state

from heliotrope_epp.plugins.interface import Option, Pick, Picker
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.max_score import MaxScorePicker
from heliotrope_epp.plugins.pickers.random_choice import RandomPicker
from heliotrope_epp.plugins.pickers.ranking import PickerParameters
from heliotrope_epp.plugins.profilehandlers.single import SingleProfileHandler

OPTIONS = [option(state(f"e{i}")) for i in range(5)]


def parameters(count: int = 1) -> PickerParameters:
    return PickerParameters.model_validate_json(f'{{"maxNumOfEndpoints": {count}}}')


def picked(picker: Picker, scores: list[float], options: list[Option] = OPTIONS) -> list[str]:
    pick = picker.pick(request(), Options.of(options[: len(scores)]), np.array(scores), NOW_UNIX_S)
    return [o.state.endpoint.name for o in pick.options]


def test_max_score_takes_the_best_and_the_next_best_as_fallbacks() -> None:
    scores = [0.1, 0.9, 0.5, 0.7, 0.3]
    assert picked(MaxScorePicker(parameters(), Random(1)), scores) == ["e1"]
    assert picked(MaxScorePicker(parameters(3), Random(1)), scores) == ["e1", "e3", "e2"]
    assert picked(MaxScorePicker(parameters(9), Random(1)), scores) == ["e1", "e3", "e2", "e4", "e0"]


def test_max_score_draws_among_equals_evenly() -> None:
    picker = MaxScorePicker(parameters(), Random(7))
    counts = Counter(picked(picker, [1.0, 0.5, 1.0, 1.0, 0.0])[0] for _ in range(3000))
    assert set(counts) == {"e0", "e2", "e3"}
    assert all(850 < count < 1150 for count in counts.values())


def test_random_draws_evenly_without_regard_to_scores() -> None:
    picker = RandomPicker(parameters(2), Random(7))
    draws = [picked(picker, [9.0, 0.0, 0.0, 0.0, 0.0]) for _ in range(5000)]
    assert all(len(set(draw)) == 2 for draw in draws)
    assert all(900 < count < 1100 for count in Counter(draw[0] for draw in draws).values())
    assert all(900 < count < 1100 for count in Counter(draw[1] for draw in draws).values())


def test_random_gives_all_when_fewer_are_left() -> None:
    assert sorted(picked(RandomPicker(parameters(4), Random(1)), [0.0, 0.0])) == ["e0", "e1"]


@pytest.mark.parametrize("kind", [MaxScorePicker, RandomPicker])
def test_the_same_seed_draws_the_same(kind: type[MaxScorePicker] | type[RandomPicker]) -> None:
    runs = []
    for _ in range(2):
        picker = kind(parameters(3), Random(42))
        runs.append([picked(picker, [0.0] * 5) for _ in range(50)])
    assert runs[0] == runs[1]
    assert len({tuple(draw) for draw in runs[0]}) > 10


@pytest.mark.parametrize("count", [0, -1])
def test_at_least_one_endpoint_is_picked(count: int) -> None:
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        parameters(count)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=5, unique=True), st.integers(1, 6), st.randoms())
def test_max_score_does_not_depend_on_the_order(scores: list[float], count: int, random: Random) -> None:
    order = list(range(len(scores)))
    random.shuffle(order)
    straight = picked(MaxScorePicker(parameters(count), Random(1)), scores)
    shuffled = picked(
        MaxScorePicker(parameters(count), Random(2)), [scores[i] for i in order], [OPTIONS[i] for i in order]
    )
    assert straight == shuffled


def test_single_profile_handler_runs_and_returns_the_one() -> None:
    handler = SingleProfileHandler()
    assert handler.profiles(request(), ["default"]) == ["default"]
    assert handler.primary({"default": Pick(())}) == "default"
