"""Reading documents: defaults, round trips, and errors that name the field."""

import datetime
from typing import Any

import pytest
import yaml
from tests.support.resource_documents import REMOVED, Document, changed, full_documents, region_profile

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import CarbonPolicy, NodePower, RegionProfile, WorkloadVariant
from heliotrope.api.v1alpha1.common import Enforcement
from heliotrope.errors import InvalidInputError

MINIMAL = """
apiVersion: heliotrope.io/v1alpha1
kind: CarbonPolicy
metadata:
  name: green
spec:
  targetRefs:
    - name: llama
  slo:
    ttft: 2s
    tpot: 80ms
"""


@pytest.mark.parametrize(
    "document", [each for documents in full_documents().values() for each in documents], ids=lambda each: each["kind"]
)
def test_a_full_document_reads_back_as_it_was(document: Document) -> None:
    written = parse(document).to_document()

    assert (written["spec"], written["status"]) == (document["spec"], document["status"])
    assert parse(written) == parse(document)


def test_the_kind_decides_the_type() -> None:
    assert isinstance(parse(full_documents()["RegionProfile"][0]), RegionProfile)
    assert isinstance(parse(full_documents()["CarbonPolicy"][0]), CarbonPolicy)
    assert isinstance(parse(full_documents()["WorkloadVariant"][0]), WorkloadVariant)
    assert isinstance(parse(full_documents()["NodePower"][0]), NodePower)


def test_defaults_are_filled_in_and_the_safe_one_is_advise() -> None:
    policy = parse(yaml.safe_load(MINIMAL))

    assert isinstance(policy, CarbonPolicy)
    assert policy.spec.enforcement is Enforcement.ADVISE
    assert policy.spec.placement.window == datetime.timedelta(milliseconds=100)
    assert policy.spec.autoscaling is None
    assert policy.to_document()["spec"]["objective"]["order"] == ["carbon", "energy", "cost", "latency"]


def test_objects_are_frozen_and_hold_numbers_with_units() -> None:
    profile = parse(region_profile())

    assert isinstance(profile, RegionProfile)
    assert (profile.spec.pue, profile.spec.stale_after.total_seconds()) == (1.15, 7_200.0)
    with pytest.raises(ValueError, match="frozen"):
        profile.spec.pue = 1.0  # type: ignore[misc]


def test_python_code_uses_attribute_names_and_documents_use_json_names() -> None:
    spelled = changed(region_profile(), {"spec.stale_after": "3h", "spec.staleAfter": REMOVED})

    with pytest.raises(InvalidInputError, match=r"spec\.stale_after: unknown field"):
        parse(spelled)
    profile = parse(region_profile())
    assert type(profile.spec)(**dict(profile.spec)) == profile.spec


def test_times_that_yaml_turned_into_objects_are_read() -> None:
    text = yaml.safe_dump(region_profile("file")).replace("'2022-06-01T00:00:00Z'", "2022-06-01T00:00:00Z")
    loaded = yaml.safe_load(text)
    assert isinstance(loaded["spec"]["source"]["file"]["replay"]["seriesStart"], datetime.datetime)

    assert parse(loaded) == parse(region_profile("file"))


def test_null_counts_as_absent() -> None:
    document = changed(region_profile(), {"spec.pue": None, "spec.capacity": None, "status": None})

    profile = parse(document)

    assert isinstance(profile, RegionProfile)
    assert (profile.spec.pue, profile.status) == (1.2, None)


def test_fields_of_a_newer_api_are_refused_from_files_and_ignored_from_the_api_server() -> None:
    newer = changed(region_profile(), {"spec.fromTheFuture": {"x": 1}, "spec.source.static.note": "x"})

    with pytest.raises(InvalidInputError, match="unknown field"):
        parse(newer)
    assert parse(newer, unknown_fields="ignore") == parse(region_profile())


def test_metadata_that_only_the_api_server_needs_is_ignored() -> None:
    kept = {"managedFields": [{"manager": "kubectl"}], "finalizers": ["x"], "generation": 4}

    profile = parse(changed(region_profile(), {f"metadata.{name}": value for name, value in kept.items()}))

    assert profile.metadata.generation == 4


@pytest.mark.parametrize(
    ("changes", "path", "problem"),
    [
        ({"apiVersion": "v1"}, "apiVersion", "is 'v1'; must be heliotrope.io/v1alpha1"),
        (
            {"kind": "Region"},
            "kind",
            "is 'Region'; must be one of RegionProfile, CarbonPolicy, WorkloadVariant, NodePower",
        ),
        ({"spec": REMOVED}, "spec", "required"),
        ({"spec": "x"}, "spec", "must be an object"),
        ({"metadata.name": REMOVED}, "metadata.name", "required"),
        ({"spec.pue": 1.2}, "spec.pue", "must be a string"),
        ({"spec.pue": "5.01"}, "spec.pue", "must be between 1 and 5 (is '5.01')"),
        ({"spec.pollInterval": "5 minutes"}, "spec.pollInterval", 'must be a duration such as "500ms", "30s" or'),
        ({"spec.largestSharePercent": "50"}, "spec.largestSharePercent", "must be an integer"),
        ({"spec.signal.type": "Average"}, "spec.signal.type", "should be 'average' or 'marginal' (is 'Average')"),
        ({"spec.topologyRegions": ["a", "a"]}, "spec.topologyRegions", "duplicate value: a"),
        ({"spec.roundTripTimes[1].region": "no"}, "spec.roundTripTimes", "duplicate value: no"),
        ({"spec.roundTripTimes[1].milliseconds": -1}, "spec.roundTripTimes[1].milliseconds", "greater than or equal"),
        ({"spec.zone": ""}, "spec.zone", "at least 1 character"),
    ],
)
def test_errors_name_the_field_and_the_problem(changes: dict[str, Any], path: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(changed(region_profile(), changes))

    assert caught.value.path == path
    assert problem in caught.value.problem


def test_all_problems_are_told_at_once_up_to_a_limit() -> None:
    wrong = {f"spec.nonsense{number}": 1 for number in range(9)}

    with pytest.raises(InvalidInputError) as caught:
        parse(changed(region_profile(), wrong))

    assert caught.value.problem.count("unknown field") == 5
    assert caught.value.problem.endswith("; and 4 more")


def test_values_that_no_document_can_hold_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="cannot hold"):
        parse(changed(region_profile(), {"spec.zone": {1, 2}}))
