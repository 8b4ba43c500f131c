"""Explanations: one plain sentence for each reason, short enough for a status."""

import pytest
from tests.unit.core.scale.fleets import demand, fleet, group, region, variant

from heliotrope.scale.allocate import allocate
from heliotrope.scale.explain import LONGEST, Told, explain
from heliotrope.scale.facts import Load
from heliotrope.scale.plan import Reason
from heliotrope.scale.saturation import MeasuredLoad


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("desired", [None, 1, 2, 7])
def test_every_reason_is_told(reason: Reason, desired: int | None) -> None:
    load = MeasuredLoad(19.0, 20.0, 0.95)
    told = Told(
        variant("a", 2, ceiling=4), group(demand(1.0)), desired, reason, 3, 40.0, 17.0, load, ("carbon",), ("cost: no",)
    )
    text = explain(told)
    assert 20 < len(text) <= LONGEST
    assert text.endswith(".")
    assert "None" not in text
    assert reason.value[0].isupper()
    assert reason.value.isalnum()


def test_long_names_are_cut() -> None:
    long = tuple(f"carbon: no Fresh signal in {'region' * 30}{i}" for i in range(4))
    told = Told(variant("a", 2), group(demand(1.0)), 3, Reason.DEMAND_MET, 3, 40.0, 17.0, None, ("carbon",), long)
    assert len(explain(told)) <= LONGEST
    assert explain(told).endswith("…")


def test_what_a_person_reads() -> None:
    full = variant("a", 4, load=Load(39.0))
    (plan,) = allocate(fleet(group(None), region("r"), full)).variants
    assert plan.explanation == (
        "Raise from 4 to 5 replicas: measured load is 98% of what serves within the SLO, above 85%; this overrides "
        "carbon, then energy, then cost; a replica 10/s within the SLO."
    )
    (plan,) = allocate(fleet(group(demand(40.0)), region("r"), variant("a", 1))).variants
    assert plan.explanation == (
        "Raise from 1 to 5 replicas: the least carbon, then energy, then cost that carries the demand; carries 40 of "
        "40 requests/s, a replica 10/s within the SLO."
    )
