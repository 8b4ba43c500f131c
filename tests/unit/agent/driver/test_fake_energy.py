"""The stand-in's physics: clocks, power and the energy counter follow settings and load, exactly."""

from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.nvml.node import FakeNode, GpuState
from tests.support.nvml.products import A100_40GB, A100_80GB, H100_SXM, Product

SECOND = 1_000_000_000
PICOJOULES = 1_000_000_000
SW_POWER_CAP = 0x4
SW_THERMAL = 0x20
GPU_IDLE = 0x1


def picojoules(state: GpuState) -> int:
    return state.energy_millijoules * PICOJOULES + state.energy_picojoules


def expected_milliwatts(product: Product, mhz: int, load: float, memory_mhz: int) -> float:
    """The model as `model.c` states it, written a second time: idle power and V²f."""
    share = mhz / product.highest_mhz
    volts = 0.7 if share <= 0.6 else 0.7 + 0.3 * (share - 0.6) / 0.4
    span = (mhz - product.lowest_mhz) / (product.highest_mhz - product.lowest_mhz)
    idle = product.unloaded_milliwatts + (product.idle_milliwatts - product.unloaded_milliwatts) * span
    memory = 0.8 + 0.2 * memory_mhz / product.memory_mhz[0]
    return idle + (product.full_milliwatts - product.idle_milliwatts) * load * share * volts**2 * memory


@pytest.mark.parametrize("product", [A100_40GB, A100_80GB, H100_SXM], ids=lambda product: product.name)
def test_power_over_clock_and_load(tmp_path: Path, product: Product) -> None:
    with FakeNode.create(tmp_path / "gpus", product) as node:
        state = node.read()
        assert (state.sm_mhz, state.power_milliwatts) == (product.lowest_mhz, product.unloaded_milliwatts)
        assert state.clock_event_reasons == GPU_IDLE
        node.processes([1])
        state = node.read()
        assert (state.sm_mhz, state.power_milliwatts) == (product.highest_mhz, product.idle_milliwatts)
        assert state.clock_event_reasons == 0
        node.load(1000)
        assert node.read().power_milliwatts == product.full_milliwatts
        for mhz in product.sm_clocks_mhz:
            node.foreign_sm_lock(mhz, mhz)
            for permille in (0, 250, 1000):
                node.load(permille)
                state = node.read()
                assert state.sm_mhz == mhz
                wanted = expected_milliwatts(product, mhz, permille / 1000, product.memory_mhz[0])
                assert state.power_milliwatts == pytest.approx(wanted, abs=1)


def test_a_lower_memory_clock_draws_less(tmp_path: Path) -> None:
    with FakeNode.create(tmp_path / "gpus", H100_SXM) as node:
        node.load(1000)
        node.foreign_memory_lock(1593, 1593)
        state = node.read()
        assert state.memory_mhz == 1593
        assert state.power_milliwatts == pytest.approx(expected_milliwatts(H100_SXM, 1980, 1.0, 1593), abs=1)


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ((810, 810), (810, 810)),
        ((817, 817), (810, 810)),
        ((824, 824), (810, 810)),
        ((825, 825), (825, 825)),
        ((0, 810), (210, 810)),
        ((1, 100), (210, 210)),
        ((1410, 5000), (1410, 1410)),
        ((2000, 3000), (1410, 1410)),
    ],
)
def test_locks_are_taken_to_supported_clocks(tmp_path: Path, asked: tuple[int, int], held: tuple[int, int]) -> None:
    with FakeNode.create(tmp_path / "gpus", A100_80GB) as node:
        node.foreign_sm_lock(*asked)
        state = node.read()
        assert state.sm_lock_mhz == held
        assert state.sm_mhz == held[0], "an idle GPU runs at the lowest clock that the lock allows"
        node.load(500)
        assert node.read().sm_mhz == held[1], "a busy one at the highest"


def test_the_highest_clock_within_the_power_limit(tmp_path: Path) -> None:
    with FakeNode.create(tmp_path / "gpus", A100_80GB) as node:
        node.load(1000)
        for limit in range(100_000, 400_001, 12_500):
            node.foreign_power_limit(limit)
            fitting = [
                mhz for mhz in A100_80GB.sm_clocks_mhz if expected_milliwatts(A100_80GB, mhz, 1.0, 1593) <= limit
            ]
            state = node.read()
            assert state.sm_mhz == max(fitting)
            assert state.power_milliwatts <= limit
            assert state.clock_event_reasons == (0 if max(fitting) == 1410 else SW_POWER_CAP)


def test_a_power_limit_wins_over_a_lock_and_a_lock_below_it_is_kept(tmp_path: Path) -> None:
    with FakeNode.create(tmp_path / "gpus", A100_80GB) as node:
        node.load(1000)
        node.foreign_sm_lock(1410, 1410)
        node.foreign_power_limit(200_000)
        held_down = node.read()
        assert held_down.sm_mhz < 1410
        assert held_down.clock_event_reasons == SW_POWER_CAP
        node.foreign_sm_lock(600, 600)
        state = node.read()
        assert (state.sm_mhz, state.clock_event_reasons) == (600, 0)


def test_heat_slows_down(tmp_path: Path) -> None:
    with FakeNode.create(tmp_path / "gpus", A100_80GB) as node, node.time_stands_still():
        node.load(1000)
        node.slow_down(907)
        node.temperature(92)
        state = node.read()
        assert (state.sm_mhz, state.clock_event_reasons, state.temperature_celsius) == (900, SW_THERMAL, 92)
        node.slow_down(None)
        assert node.read().sm_mhz == 1410


def test_a_year_at_full_power_is_counted_exactly(tmp_path: Path) -> None:
    with FakeNode.create(tmp_path / "gpus", H100_SXM) as node, node.time_stands_still():
        node.load(1000)
        before = picojoules(node.read())
        node.advance(365 * 86_400 * SECOND)
        assert picojoules(node.read()) - before == 700_000 * 365 * 86_400 * SECOND


def test_time_goes_on_where_it_stood(tmp_path: Path) -> None:
    with FakeNode.create(tmp_path / "gpus", A100_80GB) as node:
        with node.time_stands_still():
            node.load(1000)
            before = picojoules(node.read())
            assert picojoules(node.read()) == before
            node.advance(3_600 * SECOND)
            assert picojoules(node.read()) == before + 400_000 * 3_600 * SECOND
        after = picojoules(node.read())
        assert before + 400_000 * 3_600 * SECOND <= after < before + 400_000 * 3_700 * SECOND


class Conservation(RuleBasedStateMachine):
    """Whatever is changed in whatever order, the counter has risen by power times time, to the picojoule."""

    folder: Path
    _names = 0

    @initialize(product=st.sampled_from([A100_40GB, H100_SXM]))
    def start(self, product: Product) -> None:
        type(self)._names += 1
        self.product = product
        self.node = FakeNode.create(self.folder / f"gpus-{type(self)._names}", product)
        self.still = self.node.time_stands_still()
        self.still.__enter__()
        self.expected = picojoules(self.node.read())

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self.still.__exit__(None, None, None)
            self.node.close()

    @rule(nanoseconds=st.integers(0, 100_000 * SECOND))
    def wait(self, nanoseconds: int) -> None:
        self.expected += self.node.read().power_milliwatts * nanoseconds
        self.node.advance(nanoseconds)

    @rule(permille=st.integers(0, 1000))
    def work(self, permille: int) -> None:
        self.node.load(permille)

    @rule(low=st.integers(0, 2500), high=st.integers(0, 2500))
    def lock(self, low: int, high: int) -> None:
        self.node.foreign_sm_lock(min(low, high), max(low, high))

    @rule()
    def reset(self) -> None:
        self.node.foreign_sm_reset()

    @rule(milliwatts=st.integers(100_000, 700_000))
    def limit(self, milliwatts: int) -> None:
        self.node.foreign_power_limit(milliwatts)

    @rule(pids=st.lists(st.integers(1, 99), max_size=3))
    def run(self, pids: list[int]) -> None:
        self.node.processes(pids)

    @rule(mhz=st.none() | st.integers(1, 2000))
    def heat(self, mhz: int | None) -> None:
        self.node.slow_down(mhz)

    @invariant()
    def conserved(self) -> None:
        if not hasattr(self, "node"):
            return
        state = self.node.read()
        assert picojoules(state) == self.expected
        assert self.product.lowest_mhz <= state.sm_mhz <= self.product.highest_mhz
        assert self.product.unloaded_milliwatts <= state.power_milliwatts <= self.product.full_milliwatts
        if state.sm_mhz > self.product.lowest_mhz:
            assert state.power_milliwatts <= state.power_limit_milliwatts + 1


def test_energy_is_conserved(tmp_path: Path) -> None:
    run = type("Run", (Conservation,), {"folder": tmp_path}).TestCase
    run.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
    run().runTest()


@given(steps=st.lists(st.tuples(st.sampled_from(["load", "lock", "limit"]), st.integers(0, 1000)), max_size=30))
@settings(max_examples=25, deadline=None)
def test_the_counter_never_falls(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    """In real time, where every call is at another moment."""
    with FakeNode.create(tmp_path_factory.mktemp("node") / "gpus", A100_80GB) as node:
        act: dict[str, Callable[[int], None]] = {
            "load": node.load,
            "lock": lambda value: node.foreign_sm_lock(value, value + 200),
            "limit": lambda value: node.foreign_power_limit(100_000 + 300 * value),
        }
        last = picojoules(node.read())
        for name, value in steps:
            act[name](value)
            now = picojoules(node.read())
            assert now > last
            last = now
