"""The examples and the page say what the operator reads."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from heliotrope.api import documents
from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope.scale.deferral import Reason
from heliotrope_operator.conditions import _HEALTHY, ConditionType
from heliotrope_operator.deferral import annotations as names
from heliotrope_operator.deferral.verdict import Unplanned
from heliotrope_operator.kinds.admissionchecks import CONTROLLER_NAME
from heliotrope_operator.kinds.deferrable import opted_in, own_annotations

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "deferral.md").read_text(encoding="utf-8")


def example(name: str) -> dict[str, dict[str, Any]]:
    text = (ROOT / "examples" / "deferral" / name).read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.mark.parametrize("name", ["job.yaml", "kueue.yaml"])
def test_jobs_of_the_examples_can_be_planned(name: str) -> None:
    job = example(name)["Job"]
    ask = names.parse(own_annotations(job["metadata"]), created_unix_s=1_796_000_000.0, longest_run_s=None)

    assert opted_in(job["metadata"])
    assert job["spec"]["suspend"] is True
    assert ask.problems == ()
    assert ask.work is not None
    assert ask.region == "spain"


def test_the_policy_of_the_example_defers() -> None:
    policy = documents.parse(example("job.yaml")["CarbonPolicy"])
    assert isinstance(policy, CarbonPolicy)
    assert policy.spec.deferral is not None


def test_the_check_of_the_example_is_ours() -> None:
    found = example("kueue.yaml")
    assert found["AdmissionCheck"]["spec"]["controllerName"] == CONTROLLER_NAME
    asked = found["ClusterQueue"]["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert [each["name"] for each in asked] == [found["AdmissionCheck"]["metadata"]["name"]]


def test_the_page_has_every_reason_and_annotation() -> None:
    reasons = set(re.findall(r"`([A-Z][A-Za-z]+)`", PAGE))
    assert {each.value for each in (*Reason, *Unplanned)} - {Reason.CLEANER_LATER} <= reasons
    written = [value for name, value in vars(names).items() if name.isupper() and str(value).startswith(names.PREFIX)]
    assert len(written) > 8
    assert not [each for each in written if each != names.PREFIX and f"`{each}`" not in PAGE]


def test_the_page_on_authority_has_every_reason_of_ceilings() -> None:
    page = (ROOT / "docs" / "authority.md").read_text(encoding="utf-8")
    for reason in (*_HEALTHY[ConditionType.CEILING_HOLDS], "HubFailing", "CeilingExpired", "CeilingUnknown"):
        assert f"`{reason}`" in page
