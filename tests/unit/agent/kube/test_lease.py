"""Only a renewal that was seen keeps wishes alive, and only for the Lease's duration."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_agent.kube.client import CONNECT_S, REQUEST_S
from heliotrope_agent.kube.cluster import LEASE_SILENCE_S
from heliotrope_agent.kube.follow import FollowTiming
from heliotrope_agent.kube.lease import LONGEST_S, LeaseSeen
from heliotrope_operator.power.controller import QUIET_S
from heliotrope_operator.power.lease import DURATION_S, RENEW_S


def lease(renewed: str | None = "12:00", *, holder: str = "a", duration: Any = 60, uid: str = "1") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": duration}
    return {"metadata": {"uid": uid}, "spec": spec}


def test_the_first_sight_is_no_renewal() -> None:
    assert LeaseSeen().see(lease(), 100.0).until_s == -math.inf


def test_a_renewal_holds_for_the_duration_from_when_it_was_seen() -> None:
    seen = LeaseSeen().see(lease("12:00"), 100.0).see(lease("12:15"), 115.0)
    assert seen.until_s == 175.0
    assert seen.see(lease("12:15"), 170.0).until_s == 175.0  # the same again
    assert seen.see(None, 120.0).until_s == 175.0  # gone: it runs out by itself
    assert seen.see(None, 120.0).see(lease("12:15"), 130.0).until_s == 175.0
    assert seen.see(lease("12:15", uid="2"), 130.0).until_s == 190.0  # another one was made now


@pytest.mark.parametrize("holder", ["b", "c"])
def test_another_holder_is_a_renewal(holder: str) -> None:
    assert LeaseSeen().see(lease(), 100.0).see(lease(holder=holder), 110.0).until_s == 170.0


@pytest.mark.parametrize("given_back", [lease("12:30", holder=""), lease(None), {"metadata": {}, "spec": {}}, {}])
def test_one_that_was_given_back_ends_at_once(given_back: dict[str, Any]) -> None:
    seen = LeaseSeen().see(lease("12:00"), 100.0).see(lease("12:15"), 115.0).see(given_back, 120.0)
    assert seen.until_s == -math.inf


@pytest.mark.parametrize("duration", [None, 0, -5, "60", 1.5])
def test_a_duration_that_is_none_extends_nothing(duration: Any) -> None:
    seen = LeaseSeen().see(lease("12:00"), 100.0).see(lease("12:15", duration=duration), 115.0)
    assert seen.until_s == -math.inf


def test_no_duration_is_believed_for_ever() -> None:
    assert LeaseSeen().see(lease("1"), 0.0).see(lease("2", duration=10**9), 0.0).until_s == LONGEST_S


def test_a_half_open_connection_outlives_no_lease() -> None:
    """Silence is noticed, and the next sight comes, before a Lease ends that was renewed just before it began."""
    between_renewals_s = RENEW_S + QUIET_S
    assert between_renewals_s < LEASE_SILENCE_S  # or every connection would be begun anew between two renewals
    noticed_s = LEASE_SILENCE_S + FollowTiming().first_pause_s + CONNECT_S + REQUEST_S
    assert noticed_s < DURATION_S < LONGEST_S


@given(st.lists(st.tuples(st.floats(0.0, 300.0), st.integers(0, 3), st.integers(1, 120)), max_size=30))
def test_it_never_holds_for_longer_than_the_duration_after_the_last_change(
    sights: list[tuple[float, int, int]],
) -> None:
    seen, now_s, before, changed_s, longest = LeaseSeen(), 0.0, None, -math.inf, 0
    for pause_s, renewal, duration in sights:
        now_s += pause_s
        if before is not None and renewal != before:
            changed_s = now_s
        longest, before = max(longest, duration), renewal
        seen = seen.see(lease(str(renewal), duration=duration), now_s)
        assert seen.until_s <= changed_s + longest
