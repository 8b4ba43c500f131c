import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope.decide.from_resources import decision_policy
from heliotrope.place.from_resources import largest_shares, placement_policy
from heliotrope.place.policy import WorkLimit

LIMIT = WorkLimit(seconds=None, nodes=10)


def policy(**placement: object) -> CarbonPolicy:
    found = parse(
        {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "CarbonPolicy",
            "metadata": {"name": "p"},
            "spec": {
                "targetRefs": [{"name": "pool"}],
                "slo": {"ttft": "2s", "tpot": "80ms"},
                "objective": {"softMultiplierWeight": "2.5"},
                "placement": placement,
            },
        }
    )
    assert isinstance(found, CarbonPolicy)
    return found


def test_what_the_policy_says_is_what_schedulers_follow() -> None:
    resource = policy(greedyLatencyWeight="0.25", window="200ms")
    decided = decision_policy(resource)
    made = placement_policy(resource.spec.placement, decided, LIMIT, peers=3)
    assert (made.latency_weight, made.window_seconds, made.carbon_weight) == (0.25, 0.2, 2.5)
    assert (made.limit, made.peers) == (LIMIT, 3)
    assert made.standard_deviations == decided.certainty > 0.0


def test_without_a_policy_estimates_keep_no_distance_to_their_slo() -> None:
    made = placement_policy(policy().spec.placement, None, LIMIT)
    assert (made.standard_deviations, made.carbon_weight, made.latency_weight) == (0.0, 1.0, 0.0)


@given(
    st.floats(0.01, 1.0),
    st.lists(st.tuples(st.floats(0.01, 1.0), st.booleans()), min_size=1, max_size=8),
)
def test_the_regions_that_are_up_may_always_take_everything(by_policy: float, rows: list[tuple[float, bool]]) -> None:
    own, up = [share for share, _ in rows], [there for _, there in rows]
    caps = largest_shares(by_policy, own, up)
    there = np.array(up)
    if there.any():
        assert caps[there].sum() >= 1.0 - 1e-9
    assert ((caps > 0.0) & (caps <= 1.0)).all()
    stated = np.minimum(own, by_policy)
    assert (caps >= stated - 1e-12).all()
    if stated[there].sum() >= 1.0:
        assert caps == pytest.approx(stated)


def test_caps_grow_in_proportion() -> None:
    caps = largest_shares(0.5, [0.2, 1.0, 1.0], [True, True, False])
    assert caps[:2] == pytest.approx([0.2 / 0.7, 0.5 / 0.7])
    assert math.isclose(caps[0] + caps[1], 1.0)
