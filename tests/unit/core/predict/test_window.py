import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope.predict.features import FEATURE_COUNT, STEP_FEATURE_COUNT, column_of
from heliotrope.predict.models import hardware_keys
from heliotrope.predict.sample import Sample
from heliotrope.predict.targets import REQUESTS, STEPS
from heliotrope.predict.trainingset import FORMAT, InvalidSamplesError, Split, TrainingSet, block_key, split_of
from heliotrope.predict.window import StratifiedWindow, strata_of
from heliotrope.sealed import sealed_bytes

NAN = float("nan")
Make = Callable[..., TrainingSet]


def sample(number: int, accelerator: float = 1.0, running: float = 1.0, prompt: float = 100.0) -> Sample:
    row = np.full(FEATURE_COUNT, NAN)
    for name, value in {
        "accelerator": accelerator,
        "running": running,
        "waiting": 0.0,
        "max_num_seqs": 10.0,
        "prompt_tokens": prompt,
    }.items():
        row[column_of(name)] = value
    return Sample(REQUESTS, f"r-{number}", float(number), row, np.array([0.1 + number * 1e-6, 0.01, NAN]))


def times(window: StratifiedWindow) -> list[float]:
    return window.training_set().at_unix_s.tolist()


def test_the_newest_replace_the_oldest_of_their_stratum() -> None:
    window = StratifiedWindow(REQUESTS, capacity=100, per_stratum=3)
    window.add(sample(0, accelerator=2.0))
    for number in range(1, 8):
        window.add(sample(number))
    assert times(window) == [0.0, 5.0, 6.0, 7.0]
    assert (len(window), window.added, window.evicted) == (4, 8, 4)


def test_when_all_is_full_the_largest_stratum_gives_way() -> None:
    window = StratifiedWindow(REQUESTS, capacity=6, per_stratum=5)
    for number in range(5):
        window.add(sample(number))
    for number in range(5, 8):
        window.add(sample(number, accelerator=2.0))
    assert times(window) == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_hardware_regime_and_prompt_length_make_strata() -> None:
    rows = np.stack(
        [
            sample(0).row,
            sample(1, accelerator=2.0).row,
            sample(2, running=8.0).row,
            sample(3, prompt=5_000.0).row,
            sample(4, prompt=101.0).row,
            sample(5, prompt=NAN).row,
        ]
    )
    strata = strata_of(rows, REQUESTS)
    assert len(set(strata)) == 5
    assert strata[4] == strata[0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=200))
def test_it_never_holds_more_than_its_bounds(draws: list[tuple[int, int]]) -> None:
    window = StratifiedWindow(REQUESTS, capacity=20, per_stratum=8)
    for number, (accelerator, running) in enumerate(draws):
        window.add(sample(number, float(accelerator), float(running)))
        assert len(window) <= 20
        assert max(window.strata.values()) <= 8
        assert times(window)[-1] == number  # the newest is always there
    assert sum(window.strata.values()) == len(window) == window.added - window.evicted
    assert len(window.training_set()) == len(window)


def test_a_sample_of_another_table_is_refused() -> None:
    step = Sample(STEPS, "s", 0.0, np.zeros(STEP_FEATURE_COUNT), np.ones(1))
    with pytest.raises(ValueError, match="steps"):
        StratifiedWindow(REQUESTS).add(step)


def test_steps_have_a_window_too(make_steps: Make) -> None:
    window = StratifiedWindow(STEPS, capacity=50)
    window.add_all(make_steps(80, seed=1))
    assert len(window) == 50


def test_the_split_is_by_key_alone_and_14_to_3_to_3() -> None:
    splits = Counter(split_of(f"request-{i}") for i in range(20_000))
    assert splits[Split.TRAIN] == pytest.approx(14_000, rel=0.03)
    assert splits[Split.CALIBRATE] == pytest.approx(3_000, rel=0.1)
    assert splits[Split.TEST] == pytest.approx(3_000, rel=0.1)
    assert [split_of("a"), split_of("b"), split_of("a")][::2] == [split_of("a")] * 2


@given(st.text(max_size=8), st.integers(0, 10_000))
def test_few_blocks_of_a_source_are_enough_for_all_splits(source: str, first: int) -> None:
    def blocks(count: int) -> Counter[Split]:
        return Counter(split_of(block_key(source, 10 * (first + i))) for i in range(count))

    assert set(blocks(7)) == set(Split)
    assert blocks(20) == {Split.TRAIN: 14, Split.CALIBRATE: 3, Split.TEST: 3}
    assert len({split_of(block_key(source, 10 * first + i)) for i in range(10)}) == 1


def same(one: TrainingSet, other: TrainingSet) -> None:
    assert one.table is other.table
    for name in ("rows", "labels", "at_unix_s", "splits"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_bytes_are_read_back_and_a_window_is_restored(make_pool: Make) -> None:
    samples = make_pool(100, seed=1)
    again = TrainingSet.from_bytes(samples.to_bytes())
    same(again, samples)
    window = StratifiedWindow(REQUESTS)
    window.add_all(again)
    same(window.training_set(), samples)  # the splits with it: nothing trained on is tested on after a restart
    same(TrainingSet.from_bytes(samples.where(samples.splits > 9).to_bytes()), samples.where(samples.splits > 9))


def test_cut_or_changed_bytes_are_refused(make_pool: Make) -> None:
    data = make_pool(5, seed=1).to_bytes()
    for length in range(0, len(data), 37):
        with pytest.raises(InvalidSamplesError):
            TrainingSet.from_bytes(data[:length])
    for at in range(0, len(data), 41):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(InvalidInputError):
            TrainingSet.from_bytes(bytes(changed))
    for junk in (b"", b"\n\n\n", b"\x00" * 100, b"heliotrope-samples 1\nsha256 \n\n"):
        with pytest.raises(InvalidSamplesError):
            TrainingSet.from_bytes(junk)


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("rows", np.inf, "rows"),
        ("labels", -1.0, "ttft_seconds"),
        ("labels", np.inf, "ttft_seconds"),
        ("labels", 1e9, "ttft_seconds"),
        ("at_unix_s", NAN, "at_unix_s"),
        ("at_unix_s", -5.0, "at_unix_s"),
        ("splits", 3, "splits"),
    ],
)
def test_samples_that_cannot_be_true_are_refused_in_spite_of_a_good_digest(
    make_pool: Make, name: str, value: float, field: str
) -> None:
    samples = make_pool(5, seed=1)
    column = getattr(samples, name).copy()
    column.reshape(-1)[0] = value
    data = replace(samples, **{name: column}).to_bytes()
    with pytest.raises(InvalidSamplesError) as caught:
        TrainingSet.from_bytes(data)
    assert caught.value.path == f"samples.{field}"


@pytest.mark.parametrize(
    "change",
    [{"table": "x"}, {"table": []}, {"features": []}, {"targets": None}, {"samples": -1}, {"samples": 10**9},
     {"samples": True}, {"samples": "5"}, {"samples": 6}],
)  # fmt: skip
def test_heads_that_do_not_fit_are_refused(make_pool: Make, change: dict[str, object]) -> None:
    magic, _, head, content = make_pool(5, seed=1).to_bytes().split(b"\n", 3)
    body = json.dumps(json.loads(head) | change).encode() + b"\n" + content
    data = magic + b"\nsha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    with pytest.raises(InvalidSamplesError):
        TrainingSet.from_bytes(data)


@pytest.mark.parametrize("body", [b"", b"{}", b" " * 70_000 + b"{}\n"])
def test_a_head_that_does_not_end_is_not_read(body: bytes) -> None:
    with pytest.raises(InvalidSamplesError) as caught:
        TrainingSet.from_bytes(sealed_bytes(FORMAT, body))
    assert caught.value.path == "samples.head"


def test_a_cut_drops_the_past_of_one_hardware_only(make_pool: Make) -> None:
    samples = make_pool(200, seed=1)
    keys = hardware_keys(samples.rows)
    one, other = np.unique(keys)
    left = samples.without_before({int(one): 150.0})
    left_keys = hardware_keys(left.rows)
    assert left.at_unix_s[left_keys == one].min() >= 150.0
    assert (left_keys == other).sum() == (keys == other).sum()
    same(samples.without_before({}), samples)
    same(samples.without_before({12345: 1e9}), samples)
