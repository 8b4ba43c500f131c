"""Faults strike whom they should, as often as they should."""

import pytest
from pydantic import ValidationError

from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator.faults import Fault, FaultInjector, FaultKind


def test_a_counted_fault_ends() -> None:
    injector = FaultInjector(seed=0)
    injector.add(Fault(kind=FaultKind.ERROR, count=2))
    assert [injector.strike() is not None for _ in range(4)] == [True, True, False, False]
    assert injector.listing() == []


def test_a_fault_without_a_count_lasts_until_it_is_cleared() -> None:
    injector = FaultInjector(seed=0)
    injector.add(Fault(kind=FaultKind.SLOW))
    assert all(injector.strike() for _ in range(10))
    injector.clear()
    assert injector.strike() is None


def test_probability_is_seeded() -> None:
    def hits(seed: int) -> list[bool]:
        injector = FaultInjector(seed)
        injector.add(Fault(kind=FaultKind.ERROR, probability=0.3))
        return [injector.strike() is not None for _ in range(1000)]

    assert hits(1) == hits(1) != hits(2)
    assert 200 < sum(hits(1)) < 400


def test_ill_health_is_no_fault_of_a_request() -> None:
    injector = FaultInjector(seed=0)
    injector.add(Fault(kind=FaultKind.UNHEALTHY))
    assert not injector.healthy
    assert injector.strike() is None
    injector.clear()
    assert injector.healthy


def test_the_number_of_faults_is_bounded() -> None:
    injector = FaultInjector(seed=0)
    for _ in range(FaultInjector.LIMIT):
        injector.add(Fault(kind=FaultKind.HANG))
    with pytest.raises(InvalidInputError, match="clear them first"):
        injector.add(Fault(kind=FaultKind.HANG))


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "explode"},
        {"kind": "error", "status": 200},
        {"kind": "cut", "after_tokens": 0},
        {"kind": "error", "probability": 0},
        {"kind": "unhealthy", "count": 1},
        {"kind": "error", "colour": "red"},
    ],
)
def test_nonsense_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Fault.model_validate(data)
