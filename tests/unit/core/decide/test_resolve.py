"""Classes, events and wishes: what holds for one request."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.decide.pools import NOW, POLICY, REQUEST, THREE, pool

from heliotrope.decide.asked import NOTHING_ASKED, Asked, parse_objective, parse_priority, parse_regions
from heliotrope.decide.decision import decide
from heliotrope.decide.policy import (
    Comparison,
    DemandEvent,
    Objective,
    Overridable,
    Override,
    Provenance,
    ServiceClass,
    Term,
)
from heliotrope.decide.resolve import NOT_ALLOWED, Resolver, class_of, event_at, policy_for
from heliotrope.errors import InvalidInputError

ENERGY_FIRST = Comparison(Objective.LEXICOGRAPHIC, order=(Term.ENERGY, Term.LATENCY))
FASTEST = Comparison(Objective.LEXICOGRAPHIC, order=(Term.LATENCY,), choices=0)
BATCH = ServiceClass("batch", frozenset({"nightly"}), None, -1, 30.0, 0.5, ENERGY_FIRST)
CHAT = ServiceClass("chat", frozenset(), 10, None, None, None, FASTEST, answers_demand=False)
EVENT = DemandEvent("evening", NOW, NOW + 100.0)
SAVE_POWER = Comparison(Objective.WEIGHTED, weights={Term.ENERGY: 1.0})
OPEN = Overridable(frozenset(Override), 0.1, 10.0, 0.01, 1.0)
FULL = replace(
    POLICY,
    classes=(BATCH, CHAT),
    events=(EVENT,),
    event_comparison=SAVE_POWER,
    overrides=OPEN,
    allowed_regions=frozenset({"a", "b"}),
)


def test_without_anything_to_change_the_policy_stays_the_same_object() -> None:
    assert policy_for(POLICY, NOTHING_ASKED, NOW) is POLICY
    assert policy_for(FULL, NOTHING_ASKED, NOW + 1e6) is FULL


def test_a_class_changes_promise_and_comparison() -> None:
    resolved = policy_for(FULL, Asked(priority=-5), NOW - 1.0)
    assert (resolved.ttft_slo_seconds, resolved.tpot_slo_seconds) == (30.0, 0.5)
    assert resolved.order == ENERGY_FIRST.order
    assert resolved.provenance == Provenance(service_class="batch")
    assert resolved.name == FULL.name


def test_an_event_takes_the_place_of_the_class_that_answers_it_and_of_no_other() -> None:
    batch = policy_for(FULL, Asked(service_class="batch"), NOW)
    assert (batch.objective, batch.ttft_slo_seconds) == (Objective.WEIGHTED, 30.0)
    assert batch.provenance.event == "evening"
    chat = policy_for(FULL, Asked(service_class="chat"), NOW)
    assert (chat.order, chat.provenance.event) == (FASTEST.order, None)
    unclassed = policy_for(FULL, NOTHING_ASKED, NOW)
    assert (unclassed.weights, unclassed.provenance) == (SAVE_POWER.weights, Provenance(event="evening"))


@pytest.mark.parametrize(("at", "holds"), [(-0.001, False), (0.0, True), (99.999, True), (100.0, False)])
def test_an_event_holds_from_its_start_until_before_its_end(at: float, *, holds: bool) -> None:
    assert (event_at((EVENT,), NOW + at) is EVENT) is holds


def test_an_event_without_a_comparison_changes_nothing() -> None:
    assert policy_for(replace(FULL, event_comparison=None), NOTHING_ASKED, NOW).provenance == Provenance()


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (Asked(service_class="chat", priority=-5), "chat"),
        (Asked(service_class="gone", priority=-5), "batch"),
        (Asked(inference_objective="nightly", priority=20), "batch"),
        (Asked(priority=-1), "batch"),
        (Asked(priority=0), None),
        (Asked(priority=10), "chat"),
        (Asked(inference_objective="other"), None),
        (Asked(service_class="gone"), None),
    ],
)
def test_to_which_class_a_request_belongs(asked: Asked, name: str | None) -> None:
    found = class_of(FULL.classes, asked)
    assert (None if found is None else found.name) == name


def test_a_class_without_a_range_has_no_request_by_priority() -> None:
    assert class_of((ServiceClass("x"),), Asked(priority=3)) is None


def test_regions_are_only_narrowed() -> None:
    assert policy_for(FULL, Asked(regions=frozenset({"b", "c"})), 0.0).allowed_regions == {"b"}
    unbounded = replace(FULL, allowed_regions=None)
    assert policy_for(unbounded, Asked(regions=frozenset({"c"})), 0.0).allowed_regions == {"c"}
    nothing = policy_for(FULL, Asked(regions=frozenset({"c"})), 0.0)
    assert decide(REQUEST, pool(["a", "b", "c"], THREE), nothing, NOW).endpoint is None


def test_an_objective_of_the_request_comes_last() -> None:
    by_order = policy_for(FULL, Asked(service_class="batch", order=(Term.COST,)), NOW)
    assert (by_order.objective, by_order.order) == (Objective.LEXICOGRAPHIC, (Term.COST,))
    by_weight = policy_for(FULL, Asked(weights={Term.LATENCY: 2.0}), 0.0)
    assert (by_weight.objective, by_weight.weights) == (Objective.WEIGHTED, {Term.LATENCY: 2.0})
    assert by_weight.provenance.applied == (Override.OBJECTIVE,)


asked_things = st.builds(
    Asked,
    service_class=st.sampled_from([None, "batch", "chat", "x"]),
    priority=st.one_of(st.none(), st.integers(-20, 20)),
    ttft_slo_seconds=st.one_of(st.none(), st.floats(1e-3, 100.0)),
    tpot_slo_seconds=st.one_of(st.none(), st.floats(1e-3, 100.0)),
    order=st.lists(st.sampled_from(list(Term)), max_size=3, unique=True).map(tuple),
    weights=st.one_of(st.none(), st.dictionaries(st.sampled_from(list(Term)), st.floats(0.1, 5.0), min_size=1)),
    regions=st.one_of(st.none(), st.frozensets(st.sampled_from("abc"), min_size=1)),
)


@given(asked=asked_things, now=st.floats(NOW - 200.0, NOW + 200.0))
def test_a_closed_policy_gives_no_wish_and_says_so(asked: Asked, now: float) -> None:
    closed = replace(FULL, overrides=Overridable(frozenset()))
    resolved = policy_for(closed, asked, now)
    wishes = {
        Override.SLO: asked.ttft_slo_seconds is not None or asked.tpot_slo_seconds is not None,
        Override.OBJECTIVE: bool(asked.order or asked.weights),
        Override.REGIONS: asked.regions is not None,
    }
    assert resolved.provenance.applied == ()
    assert resolved.provenance.refused == tuple((each, NOT_ALLOWED) for each, wished in wishes.items() if wished)
    plain = policy_for(closed, Asked(service_class=asked.service_class, priority=asked.priority), now)
    assert replace(resolved, provenance=plain.provenance) == plain


@given(asked=asked_things, now=st.floats(NOW - 200.0, NOW + 200.0))
def test_nobody_loosens_the_operators_constraints(asked: Asked, now: float) -> None:
    resolved = policy_for(FULL, asked, now)
    assert resolved.allowed_regions is not None
    assert resolved.allowed_regions <= {"a", "b"}
    for name in ("name", "quality_floor", "power", "largest_region_share", "enforce", "holdout_percent", "certainty"):
        assert getattr(resolved, name) == getattr(FULL, name)
    assert len(resolved.provenance.applied) + len(resolved.provenance.refused) <= len(Override)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Asked(ttft_slo_seconds=0.05), "TTFT of 0.05 s is not between 0.1 s and 10 s"),
        (Asked(ttft_slo_seconds=1.0, tpot_slo_seconds=2.0), "TPOT of 2 s is not between 0.01 s and 1 s"),
    ],
)
def test_a_promise_out_of_bounds_is_refused_with_the_bounds(asked: Asked, reason: str) -> None:
    assert policy_for(FULL, asked, 0.0).provenance.refused == ((Override.SLO, reason),)


def test_a_promise_within_bounds_stays_with_the_request() -> None:
    resolved = policy_for(FULL, Asked(ttft_slo_seconds=0.5), 0.0)
    assert resolved.provenance.applied == (Override.SLO,)
    assert resolved.ttft_slo_seconds == FULL.ttft_slo_seconds


@given(requests=st.lists(st.tuples(asked_things, st.floats(NOW - 200.0, NOW + 200.0)), max_size=30))
def test_a_memory_of_settings_changes_none(requests: list[tuple[Asked, float]]) -> None:
    resolver = Resolver()
    for policy in (FULL, replace(FULL, ttft_slo_seconds=9.0, overrides=Overridable(frozenset()))):
        for asked, now in requests:
            assert resolver.policy_for(policy, asked, now) == policy_for(policy, asked, now)


def test_requests_of_one_class_share_their_settings() -> None:
    resolver = Resolver()
    first = resolver.policy_for(FULL, Asked(priority=-1), NOW)
    assert resolver.policy_for(FULL, Asked(priority=-2), NOW) is first
    assert resolver.policy_for(FULL, Asked(priority=-2), NOW + 1e6) is not first


def test_headers_of_objectives() -> None:
    assert parse_objective(" energy , latency") == ((Term.ENERGY, Term.LATENCY), None)
    assert parse_objective("carbon=2, risk=0.5") == ((), {Term.CARBON: 2.0, Term.RISK: 0.5})
    assert parse_regions("es, no,,es") == {"es", "no"}
    assert (parse_priority(" -7 "), parse_priority("12")) == (-7, 12)


@pytest.mark.parametrize(
    "text",
    [
        *("", "speed", "carbon,carbon", "carbon=x", "carbon=-1", "carbon=nan", "carbon=inf", "carbon=0"),
        *("carbon=1,carbon=2", "carbon,energy=1", "carbon=1e9", "carbon=", "=1", "c" * 2000),
    ],
)
def test_a_malformed_objective_is_told(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_objective(text)


@pytest.mark.parametrize("text", ["", "1.5", "--1", "1e3", "²", "4294967296", "0x10", "-"])
def test_a_malformed_priority_is_told(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_priority(text)


@given(text=st.text(max_size=80))
def test_no_header_text_does_more_than_be_refused(text: str) -> None:
    for parse in (parse_objective, parse_priority, parse_regions):
        with contextlib.suppress(InvalidInputError):
            parse(text)


@pytest.mark.parametrize("text", ["", " , ", ",".join(f"r{i}" for i in range(65))])
def test_a_malformed_list_of_regions_is_told(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_regions(text)
