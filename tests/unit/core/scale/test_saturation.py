"""The saturation guard: what counts as load, and that it only ever raises."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.scale.fleets import demand, group, variant

from heliotrope.api.v1alpha1.common import Role
from heliotrope.scale.facts import Load, ReplicaCounts, VariantFacts
from heliotrope.scale.saturation import measured_load, raise_to

GROUP = group(demand(1.0))


def every(_: VariantFacts, asked: int) -> int:
    return asked


def share(*variants: VariantFacts) -> float | None:
    load = measured_load(GROUP, variants)
    return None if load is None else load.share


def test_load_is_a_share_of_what_serves() -> None:
    assert share(variant("a", 4, load=Load(30.0))) == pytest.approx(0.75)
    starting = variant("a", 4, replicas=ReplicaCounts(4, 2, 2), load=Load(19.0))
    assert share(starting) == pytest.approx(0.95)


def test_a_backlog_and_full_memory_are_load() -> None:
    assert share(variant("a", 4, load=Load(30.0, waiting_requests=600.0))) == pytest.approx(1.0)
    assert share(variant("a", 4, load=Load(1.0, kv_usage=0.95))) == pytest.approx(1.0)
    assert share(variant("a", 4, load=Load(30.0, waiting_requests=float("nan")))) == pytest.approx(0.75)


def test_an_engine_that_nobody_measures_makes_load_unknown() -> None:
    """llm-d-autoscaling#360."""
    assert share(variant("a", 4, load=Load(30.0)), variant("b", 1, load=Load())) is None
    assert share(variant("a", 4, load=Load(30.0)), variant("b", 1, replicas=None)) is None
    assert share(variant("a", 4, load=Load(30.0)), variant("b", 0, load=Load())) == pytest.approx(0.75)


def test_the_phase_nearer_to_its_limit_counts() -> None:
    prefill = variant("p", 2, role=Role.PREFILL, load=Load(5.0))
    decode = variant("d", 2, 4.0, role=Role.DECODE, load=Load(7.6))
    load = measured_load(GROUP, [prefill, decode])
    assert load is not None
    assert load.share == pytest.approx(0.95)
    assert load.serving_capacity == pytest.approx(8.0)


def test_held_requests_without_an_engine_are_infinite_load() -> None:
    load = measured_load(group(demand(0.0), held=3.0), [variant("a", 0)])
    assert load is not None
    assert load.share == inf
    assert raise_to(group(demand(0.0)), [variant("a", 0)], {"a": 0}, every, load) == {"a": 1}


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from([2.0, 10.0]), st.integers(0, 8)), min_size=1, max_size=4),
    st.floats(0.0, 300.0),
    st.floats(0.0, 300.0),
    st.integers(0, 5),
)
def test_it_is_monotone_in_load(kinds: list[tuple[int, float, int]], one: float, other: float, grants: int) -> None:
    planned = {f"v{i}": planned for i, (_, _, planned) in enumerate(kinds)}

    def raised(load: float) -> dict[str, int]:
        variants = [
            variant(f"v{i}", serving, rate, load=Load(load / len(kinds))) for i, (serving, rate, _) in enumerate(kinds)
        ]
        return raise_to(GROUP, variants, planned, lambda _, asked: min(asked, grants), measured_load(GROUP, variants))

    low, high = sorted((one, other))
    less, more = raised(low), raised(high)
    assert all(less[name] >= planned[name] for name in planned)
    assert sum(more.values()) >= sum(less.values())
