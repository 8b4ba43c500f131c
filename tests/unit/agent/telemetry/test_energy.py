import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.engine.counters import Refusal
from heliotrope_agent.driver.interface import Device
from heliotrope_agent.pods.claims import ANYWHERE, PodName
from heliotrope_agent.telemetry.energy import EnergyBooks, Line, Nobody, Patience, line_of
from heliotrope_agent.telemetry.tenants import Payer, Tenancy, Tenant

A, B = "GPU-a", "GPU-b"
DEVICES = (Device(A, 0, "H100"), Device(B, 1, "H100"))
ENGINE = Payer(PodName("team", "engine-0"), "llama", "decode")
OTHER = Payer(PodName("team", "notebook-0"))


def held(**payers: Payer | tuple[Payer, ...]) -> dict[str, Line]:
    """By the GPU's letter; the others are free."""
    tenancy: Tenancy = {
        f"GPU-{letter}": tuple(Tenant(each, "c") for each in (who if isinstance(who, tuple) else (who,)))
        for letter, who in payers.items()
    }
    return lines(tenancy)


def lines(tenancy: Tenancy) -> dict[str, Line]:
    return {device.uuid: line_of(device, tenancy) for device in DEVICES}


def test_what_a_pods_gpus_drew_is_the_pods() -> None:
    books = EnergyBooks()
    for uuid, start in ((A, 5_000), (B, 900_000)):
        books.counter(uuid, start, 0.0)
    books.look(held(a=ENGINE, b=ENGINE), 0.0)
    books.counter(A, 5_300, 1.0)
    books.counter(B, 900_500, 1.0)
    books.look(held(a=ENGINE, b=ENGINE), 1.0)
    assert books.pods == {ENGINE: 800}
    assert books.gpus == {A: 300, B: 500}
    assert not books.nobody


def test_a_handover_is_split_when_it_is_seen() -> None:
    books = EnergyBooks()
    books.counter(A, 0, 0.0)
    books.look(held(a=ENGINE), 0.0)
    books.counter(A, 300, 1.0)
    books.look(held(), 1.0)
    books.counter(A, 350, 2.0)
    books.look(held(a=OTHER), 2.0)
    books.counter(A, 850, 3.0)
    books.look(held(a=(OTHER, ENGINE)), 3.0)
    books.counter(A, 1_850, 4.0)
    books.look(held(a=ENGINE), 4.0)
    assert books.pods == {ENGINE: 300, OTHER: 500}
    assert books.nobody == {(A, Nobody.FREE): 50, (A, Nobody.SHARED): 1_000}
    assert books.gpus == {A: 1_850}


def test_whose_energy_it_is() -> None:
    whole, partitioned = Device(A, 0, "H100"), Device(A, 0, "H100", mig=True)
    one, two, somewhere = (Tenant(ENGINE, "c"),), (Tenant(ENGINE, "c"), Tenant(OTHER, "c")), (Tenant(OTHER, "c"),)
    assert line_of(whole, {A: one}) == ENGINE
    assert line_of(whole, {A: two}) is Nobody.SHARED
    assert line_of(whole, {B: one}) is Nobody.FREE
    # Some claims may be for any GPU; that one has this to itself is another matter.
    assert line_of(whole, {ANYWHERE: somewhere}) is Nobody.UNKNOWN
    assert line_of(whole, {A: one, ANYWHERE: somewhere}) == ENGINE
    assert line_of(partitioned, {A: one}) is Nobody.SHARED
    assert line_of(partitioned, {}) is Nobody.UNKNOWN


def test_a_gpu_that_is_gone_keeps_what_it_drew() -> None:
    books = EnergyBooks()
    books.counter(A, 0, 0.0)
    books.look(held(a=ENGINE), 0.0)
    books.counter(A, 500, 1.0)
    books.look(held(a=ENGINE), 1.0)
    books.look({B: Nobody.FREE}, 2.0)
    assert (books.gpus, books.pods) == ({A: 500}, {ENGINE: 500})


def test_several_shares_of_one_pod_are_the_pods() -> None:
    books = EnergyBooks()
    books.counter(A, 0, 0.0)
    books.look(held(a=(ENGINE, ENGINE)), 0.0)
    books.counter(A, 10, 1.0)
    books.look(held(a=(ENGINE, ENGINE)), 1.0)
    assert books.pods == {ENGINE: 10}


def test_a_silent_kubelet_costs_a_pod_nothing_if_it_still_has_its_gpu() -> None:
    books = EnergyBooks()
    books.counter(A, 0, 0.0)
    books.look(held(a=ENGINE), 0.0)
    for second in range(1, 21):
        books.counter(A, second * 100, float(second))
    # In no line yet, so not in the sum either.
    assert (books.gpus, books.pods) == ({A: 0}, {ENGINE: 0})
    books.look(held(a=ENGINE), 20.0)
    assert (books.gpus, books.pods, books.nobody) == ({A: 2_000}, {ENGINE: 2_000}, {})


def test_what_changed_hands_while_nobody_looked_is_nobodys() -> None:
    books = EnergyBooks()
    books.counter(A, 0, 0.0)
    books.look(held(a=ENGINE), 0.0)
    books.counter(A, 400, 4.0)
    books.look(held(a=OTHER), 4.0)
    assert books.nobody == {(A, Nobody.UNKNOWN): 400}
    assert books.pods == {ENGINE: 0, OTHER: 0}


def test_after_a_long_silence_nobody_knows() -> None:
    books = EnergyBooks()
    books.counter(A, 0, 0.0)
    books.look(held(a=ENGINE), 0.0)
    for second in range(1, 41):
        books.counter(A, second * 100, float(second))
    assert books.nobody == {(A, Nobody.UNKNOWN): 4_000}
    books.look(held(a=ENGINE), 40.0)
    books.counter(A, 4_100, 41.0)
    books.look(held(a=ENGINE), 41.0)
    assert books.pods == {ENGINE: 100}
    assert books.gpus == {A: 4_100}


def test_before_the_kubelet_was_ever_heard_nobody_knows() -> None:
    books = EnergyBooks()
    books.counter(A, 0, 0.0)
    books.counter(A, 100, 1.0)
    books.look(held(a=ENGINE), 1.0)
    assert books.nobody == {(A, Nobody.UNKNOWN): 100}
    assert books.pods == {ENGINE: 0}


def test_a_look_before_the_first_reading_counts() -> None:
    books = EnergyBooks()
    books.look(held(a=ENGINE), 0.0)
    assert books.gpus == {}
    books.counter(A, 7_000, 0.1)
    books.counter(A, 7_300, 0.9)
    books.look(held(a=ENGINE), 1.0)
    assert (books.pods, books.nobody) == ({ENGINE: 300}, {})


def test_a_reboot_counts_what_was_drawn_since() -> None:
    books = EnergyBooks()
    books.counter(A, 9_000_000_000, 0.0)
    books.look(held(a=ENGINE), 0.0)
    assert books.counter(A, 200, 1.0) is None
    books.look(held(a=ENGINE), 1.0)
    assert books.pods == {ENGINE: 200}
    assert books.refused == {Refusal.RESET: 1}


def test_a_wrap_is_no_reset() -> None:
    books = EnergyBooks()
    books.counter(A, (1 << 32) - 100, 0.0)
    books.look(held(a=ENGINE), 0.0)
    assert books.counter(A, 300, 1.0) == pytest.approx(0.4)
    books.look(held(a=ENGINE), 1.0)
    assert books.pods == {ENGINE: 400}
    assert not books.refused


def test_an_absurd_value_and_the_way_back_count_nothing() -> None:
    books = EnergyBooks()
    books.counter(A, 1_000, 0.0)
    books.look(held(a=ENGINE), 0.0)
    assert books.counter(A, 10**15, 1.0) is None
    assert books.counter(A, 1_200, 2.0) is None
    assert books.counter(A, 1_300, 3.0) == pytest.approx(0.1)
    books.look(held(a=ENGINE), 3.0)
    assert books.pods == {ENGINE: 100}
    assert books.refused == {Refusal.ABSURD: 1, Refusal.RESET: 1}


def test_an_unknown_value_is_not_zero() -> None:
    books = EnergyBooks()
    books.counter(A, None, 0.0)
    assert books.gpus == {}
    books.counter(A, 1_000, 1.0)
    books.look(held(a=ENGINE), 1.0)
    books.counter(A, None, 2.0)
    assert books.counter(A, 1_600, 3.0) == pytest.approx(0.3)
    books.look(held(a=ENGINE), 3.0)
    assert books.pods == {ENGINE: 600}


def test_power_is_over_the_time_since_the_last_change() -> None:
    books = EnergyBooks()
    assert books.counter(A, 0, 0.0) is None
    assert books.counter(A, 0, 0.1) is None
    assert books.counter(A, 140_000, 0.2) == pytest.approx(700.0)


def test_pods_that_have_ended_leave_the_books_and_stay_in_the_sum() -> None:
    books = EnergyBooks(patience=Patience(ended_s=10.0, most_pods=3))
    books.counter(A, 0, 0.0)
    books.look(held(a=ENGINE), 0.0)
    books.counter(A, 70, 1.0)
    books.look(held(), 1.0)
    books.look(held(), 10.0)
    assert books.pods == {ENGINE: 70}
    books.look(held(), 11.1)
    assert (books.pods, books.ended_millijoules) == ({}, 70)
    for i in range(6):
        payer = Payer(PodName("team", f"job-{i}"))
        books.look(held(a=payer), 12.0 + 2 * i)
        books.counter(A, 71 + i, 13.0 + 2 * i)
    books.look(held(), 24.0)
    assert [payer.pod.name for payer in books.pods] == ["job-3", "job-4", "job-5"]
    assert books.ended_millijoules == 73


PAYERS = st.sampled_from([ENGINE, OTHER, Payer(ENGINE.pod), Payer(PodName("x", "y"))])
TENANCIES = st.dictionaries(st.sampled_from([A, B]), st.lists(PAYERS, max_size=2).map(tuple)).map(
    lambda by: {uuid: tuple(Tenant(payer, "c") for payer in who) for uuid, who in by.items()}
)
STEPS = st.lists(
    st.tuples(
        st.floats(0.05, 40.0),
        st.one_of(
            st.tuples(st.sampled_from([A, B]), st.integers(-100_000, 2_000_000) | st.just(10**16) | st.none()),
            TENANCIES,
        ),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_lines_are_the_whole_to_the_millijoule(steps: list[tuple[float, tuple[str, int | None] | Tenancy]]) -> None:
    books = EnergyBooks(patience=Patience(most_pods=2))
    now_s, values, before = 0.0, {A: 10_000_000, B: 0}, 0
    for after_s, step in steps:
        now_s += after_s
        if isinstance(step, tuple):
            uuid, moved = step
            values[uuid] = max(values[uuid] + (moved or 0), 0)
            books.counter(uuid, None if moved is None else values[uuid], now_s)
        else:
            books.look(lines(step), now_s)
        whole = sum(books.gpus.values())
        assert sum(books.pods.values()) + sum(books.nobody.values()) + books.ended_millijoules == whole
        assert whole >= before
        before = whole


@given(st.lists(st.tuples(st.integers(0, 50_000), TENANCIES), max_size=30))
def test_without_resets_the_whole_is_what_the_counter_rose_by(steps: list[tuple[int, Tenancy]]) -> None:
    books = EnergyBooks()
    value = 123
    books.counter(A, value, 0.0)
    for i, (moved, who) in enumerate(steps):
        value += moved
        books.counter(A, value, i + 1.0)
        books.look(lines(who), i + 1.0)
    assert books.gpus[A] == value - 123
    assert sum(books.pods.values()) + sum(books.nobody.values()) + books.ended_millijoules == value - 123
