"""What a hub shares out: never more than the budget, needs first, and nothing taken from who is silent."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope.scale.ceilings import Ceiling, parse_ceilings
from heliotrope.scale.hub import (
    Claim,
    Summary,
    document_of,
    parse_plan,
    parse_summary,
    shared_out,
    split,
    version_of,
)

PLAN: dict[str, Any] = {
    "schema": 1,
    "members": [{"name": "a", "weight": 2}, {"name": "b"}, {"name": "c", "regions": ["fr"]}],
    "budgets": [
        {"region": "es", "accelerator": "H100", "accelerators": 30},
        {"region": "es", "watts": 60_000},
        {"region": "fr", "accelerators": 8},
    ],
}

claims = st.lists(
    st.builds(Claim, weight=st.integers(1, 50), need=st.none() | st.integers(0, 2_000)), min_size=1, max_size=12
)


@given(budget=st.integers(0, 1_000), claims=claims)
def test_shares_add_up_to_the_budget_and_cover_needs_within_fair_shares(budget: int, claims: list[Claim]) -> None:
    shares = split(budget, claims)
    whole = sum(claim.weight for claim in claims)

    assert sum(shares) == budget
    assert min(shares) >= 0
    for share, claim in zip(shares, claims, strict=True):
        fair = budget * claim.weight // whole
        assert share >= (fair if claim.need is None else min(claim.need, fair))


@given(budget=st.integers(0, 1_000), claims=claims)
def test_nobody_goes_short_while_another_has_more_than_it_needs(budget: int, claims: list[Claim]) -> None:
    shares = split(budget, claims)
    short = any(claim.need is not None and share < claim.need for share, claim in zip(shares, claims, strict=True))
    if short:
        assert all(claim.need is None or share <= claim.need for share, claim in zip(shares, claims, strict=True))


def test_members_in_a_region_share_its_budgets_by_weight() -> None:
    plan = parse_plan(PLAN)

    assert shared_out(plan, {}, "a") == (
        Ceiling("es", "H100", 20, None),
        Ceiling("es", None, None, 40_000),
        Ceiling("fr", None, 4, None),
    )
    assert shared_out(plan, {}, "c") == (Ceiling("fr", None, 2, None),)


def test_what_one_leaves_another_may_use_and_a_silent_one_keeps_its_own() -> None:
    plan = parse_plan(PLAN)
    idle = Summary.model_validate({"schema": 1, "needs": [{"region": "es", "accelerator": "H100", "accelerators": 2}]})
    busy = Summary.model_validate({"schema": 1, "needs": [{"region": "es", "accelerator": "H100", "accelerators": 28}]})

    assert shared_out(plan, {"a": idle, "b": busy}, "b")[0] == Ceiling("es", "H100", 28, None)
    assert shared_out(plan, {"a": idle, "b": busy}, "a")[0] == Ceiling("es", "H100", 2, None)
    assert shared_out(plan, {"b": busy}, "a")[0] == Ceiling("es", "H100", 20, None)


def test_a_need_that_is_partly_unknown_is_unknown() -> None:
    told = Summary.model_validate(
        {
            "schema": 1,
            "needs": [
                {"region": "es", "accelerator": "H100", "accelerators": 2},
                {"region": "es", "accelerator": "A100"},
            ],
        }
    )

    assert (told.accelerators("es", "H100"), told.accelerators("es", None), told.watts("es")) == (2, None, None)
    assert told.accelerators("fr", None) == 0


def test_a_member_reads_what_the_hub_writes() -> None:
    ceilings = shared_out(parse_plan(PLAN), {}, "a")
    body = json.dumps(document_of(ceilings, "2026-05-28T20:26:40Z", "2026-05-28T20:36:40Z")).encode()

    found = parse_ceilings(body, 1_780_000_000.0)

    assert found.ceilings == ceilings
    assert found.version == version_of(ceilings) != version_of(ceilings[1:])


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"schema": 2}, "schema"),
        ({"members": []}, "members"),
        ({"members": [{"name": "A b"}]}, "members.0.name"),
        ({"members": [{"name": "a"}, {"name": "a"}]}, ""),
        ({"members": [{"name": "a", "weight": 0}]}, "members.0.weight"),
        ({"budgets": [{"region": "es"}]}, "budgets.0"),
        ({"budgets": [{"region": "es", "watts": "5"}]}, "budgets.0.watts"),
        ({"budgets": [{"region": "es", "watts": 5, "wats": 5}]}, "budgets.0.wats"),
        ({"budgets": [{"region": "es", "watts": 5}] * 2}, ""),
        ({"budget": []}, "budget"),
    ],
)
def test_a_plan_with_a_mistake_is_refused_by_name(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_plan(PLAN | changes)
    assert caught.value.path == path


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"[" * 100_000, b'{"schema": 1, "needs": [{"region": 3}]}'])
def test_a_summary_with_a_mistake_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInputError):
        parse_summary(body)


def test_a_member_that_the_plan_does_not_know_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no member z"):
        shared_out(parse_plan(PLAN), {}, "z")
