"""Wait or start: policy, region, signal, and everything that goes wrong with them."""

from typing import Any

import pytest
from tests.unit.operator import objects
from tests.unit.operator.deferral.documents import cluster_of, job, policy, region, stamp
from tests.unit.operator.objects import NOW_S

from heliotrope_operator.deferral.annotations import parse
from heliotrope_operator.deferral.surroundings import surroundings
from heliotrope_operator.deferral.verdict import PATIENCE_S, Verdict, judge
from heliotrope_operator.kinds.jobs import Job, job_key
from heliotrope_operator.resources import Kind

DAY = (300.0, 280.0, 100.0, 120.0, 250.0, 260.0, 270.0)
ONE_HOUR = {"heliotrope.io/expected-duration": "1h"}


def verdict(*documents: dict[str, Any], hours: float = 0.0, seconds: float = 0.0) -> Verdict:
    """On the Job `train` among the documents, at a time from now."""
    cluster = cluster_of(*documents)
    found: Job = cluster.table(Kind.JOB).get(job_key("ns", "train"))
    ask = parse(found.annotations, created_unix_s=found.created_unix_s, longest_run_s=found.active_deadline_s)
    return judge(
        ask,
        surroundings(cluster, "ns"),
        created_unix_s=found.created_unix_s,
        topology_region=found.topology_region,
        now_unix_s=NOW_S + hours * 3600 + seconds,
    )


def test_it_waits_for_the_clean_hour_and_says_when_and_why() -> None:
    found = verdict(job(), policy(), region("es", *DAY))

    assert (found.start, found.reason, found.warning) == (False, "CleanerLater", False)
    assert found.plan is not None
    assert found.plan.planned_unix_s == NOW_S + 2 * 3600
    assert stamp(2) in found.message
    assert "67% less" in found.message


def test_under_advise_it_starts_as_it_came_and_says_what_would_have_been() -> None:
    found = verdict(job(), policy(enforcement="Advise"), region("es", *DAY))

    assert (found.start, found.reason, found.warning) == (True, "AdviseOnly", False)
    assert stamp(2) in found.message


@pytest.mark.parametrize("freshness", ["Stale", "Absent"])
def test_a_lost_signal_starts_it(freshness: str) -> None:
    found = verdict(job(), policy(), region("es", *DAY, freshness=freshness))

    assert (found.start, found.reason, found.warning) == (True, "SignalLost", True)


def test_a_region_whose_source_was_never_asked_is_waited_for_a_little() -> None:
    fresh = objects.region("es")

    early, late = (verdict(job(), policy(), fresh, seconds=seconds) for seconds in (0, PATIENCE_S))

    assert (early.start, early.plan) == (False, None)
    assert (late.start, late.reason) == (True, "SignalLost")
    assert verdict(job(), policy(longestDelay="0s"), fresh).reason == "LongestDelay"


def test_a_region_without_a_forecast_starts_it() -> None:
    assert verdict(job(), policy(), region("es", 300.0), seconds=1).reason == "ForecastTooShort"


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        ([job()], "NoPolicy"),
        ([job(), objects.policy()], "NoPolicy"),
        ([job("train", ONE_HOUR | {"heliotrope.io/policy": "other"}), policy()], "NoPolicy"),
        ([job(), policy("a"), policy("b")], "PolicyAmbiguous"),
        ([job(), policy(), region("es", *DAY), region("fr", *DAY)], "RegionUnknown"),
        ([job("train", ONE_HOUR | {"heliotrope.io/region": "mars"}), policy(), region("es", *DAY)], "RegionUnknown"),
    ],
)
def test_what_may_still_come_is_waited_for_a_little_and_then_it_starts(
    documents: list[dict[str, Any]], reason: str
) -> None:
    early = verdict(*documents)
    late = verdict(*documents, seconds=PATIENCE_S)

    assert (early.start, early.reason, early.plan) == (False, reason, None)
    assert (late.start, late.reason, late.warning) == (True, reason, True)


def test_a_policy_that_goes_starts_what_waited() -> None:
    planned = job("train", ONE_HOUR | {"heliotrope.io/planned-start": stamp(2)}, created_h=-1)

    assert verdict(planned, region("es", *DAY)).start


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [({"heliotrope.io/expected-duration": "soon"}, "InvalidAnnotation"), ({}, "DurationUnknown")],
)
def test_an_ask_that_cannot_be_planned_starts_with_a_warning(annotations: dict[str, str], reason: str) -> None:
    found = verdict(job("train", annotations), policy(), region("es", *DAY))

    assert (found.start, found.reason, found.warning) == (True, reason, True)
    assert "heliotrope.io/expected-duration" in found.message


def test_one_of_several_policies_is_named() -> None:
    named = job("train", ONE_HOUR | {"heliotrope.io/policy": "b"})

    found = verdict(named, policy("a"), policy("b", longestDelay="1h"), region("es", *DAY))

    assert found.policy is not None
    assert found.policy.metadata.name == "b"


@pytest.mark.parametrize(
    ("annotations", "labels", "spec", "variants", "expected"),
    [
        ({"heliotrope.io/region": "fr"}, {}, {}, [], "fr"),
        ({}, {"heliotrope.io/region": "fr"}, {}, [], "fr"),
        ({}, {}, {"topology.kubernetes.io/region": "eu-west-3"}, [], "fr"),
        ({}, {}, {"topology.kubernetes.io/region": "nowhere"}, [], None),
        ({}, {}, {}, ["fr"], "fr"),
        ({}, {}, {}, ["es", "fr"], None),
        ({}, {}, {}, [], None),
    ],
)
def test_the_region_is_the_one_named_asked_for_or_served(
    annotations: dict[str, str],
    labels: dict[str, str],
    spec: dict[str, str],
    variants: list[str],
    expected: str | None,
) -> None:
    asked = job(
        "train",
        ONE_HOUR | annotations,
        labels={"heliotrope.io/deferrable": "true"} | labels,
        template={"spec": {"nodeSelector": spec}},
    )
    served = [objects.variant(name, region=name, target=None) for name in variants]

    found = verdict(
        asked,
        policy(),
        objects.pool(),
        *served,
        region("es", *DAY),
        region("fr", *DAY, topologyRegions=["eu-west-3"]),
        seconds=PATIENCE_S,
    )

    assert (None if found.region is None else found.region.metadata.name) == expected


def test_of_regions_of_one_series_the_forecast_error_decides_whether_it_waits() -> None:
    """Yesterday's forecasts were off by more than what waiting would gain."""
    rough = region("es", 300.0, 300.0, 270.0, 300.0)
    rough["status"]["forecastError"]["meanAbsoluteError"] = "80"

    assert verdict(job(), policy(), region("es", 300.0, 300.0, 270.0, 300.0)).reason == "CleanerLater"
    assert verdict(job(), policy(), rough).reason == "WithinNoise"
