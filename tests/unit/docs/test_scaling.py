"""docs/scaling.md has every reason, metric and command, and its examples are what it says."""

import re
from pathlib import Path

import pytest
import yaml

from heliotrope.api import documents
from heliotrope.api.v1alpha1 import CarbonPolicy, WorkloadVariant
from heliotrope_operator.actuation.fields import REPLICAS, Field
from heliotrope_operator.actuation.metrics import LABELS, ActuationMetrics
from heliotrope_operator.actuation.outcome import ConflictReason, Outcome, Reason
from heliotrope_operator.actuation.refusals import AGGREGATION_LABEL, forbidden
from heliotrope_operator.conditions import _HEALTHY, ConditionType
from heliotrope_operator.errors import ForbiddenError
from heliotrope_operator.resources import ResourceType

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples" / "scaling"


def cells(heading: str) -> dict[str, list[str]]:
    """Names in the tables of a section, by the column before them."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {row[0]: re.findall(r"`([A-Za-z]+)`", row[0 if heading == "Conflicts" else 1]) for row in rows}


def test_every_reason_of_a_conflict_has_its_resolution() -> None:
    found = {name for names in cells("Conflicts").values() for name in names}
    assert found - {"Conflicted"} == {reason.value for reason in ConflictReason} | {"TargetTaken"}


def test_every_reason_of_scaled_stands_under_its_status() -> None:
    section = PAGE.split("\n## `Scaled`\n")[1].split("\n## ")[0]
    status, found = "", {}
    for line in section.splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if line[:1] == "|" and row[0] not in ("status", "---"):
            status = row[0] or status
            found |= dict.fromkeys(re.findall(r"`([A-Za-z]+)`", row[1]), status)
    assert found == {reason.value: Outcome(reason, "").status.value for reason in Reason}


def test_reasons_that_need_nobody_are_reasons() -> None:
    assert _HEALTHY[ConditionType.SCALED] <= {reason.value for reason in Reason}


@pytest.mark.parametrize("name", [*LABELS, "heliotrope_actuations_total", "heliotrope_actuation_conflicts_total"])
def test_metrics_and_labels_are_named(name: str) -> None:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    ActuationMetrics(registry)
    known = {sample for family in registry.collect() for sample in (f"{family.name}_total",)}
    assert name in PAGE
    assert name in known | set(LABELS)


def test_the_commands_for_a_kind_are_those_of_the_message() -> None:
    rollouts = ResourceType("Rollout", "argoproj.io", "v1alpha1", "rollouts")
    message = forbidden(Field(rollouts, "llm", "llama", REPLICAS), ForbiddenError("403"), 3).message
    commands = re.findall(r"`(kubectl [^`]+)`", message)
    assert len(commands) == 2
    for command in commands:
        assert command in PAGE


def test_examples_are_read() -> None:
    given = yaml.safe_load_all((EXAMPLES / "policy.yaml").read_text())
    policy, variant = (documents.parse(each) for each in given)
    assert isinstance(policy, CarbonPolicy)
    assert isinstance(variant, WorkloadVariant)
    assert variant.spec.scale_target_ref is not None
    for name in ("hpa.yaml", "scaledobject.yaml"):
        scaler = yaml.safe_load((EXAMPLES / name).read_text())
        assert scaler["spec"]["scaleTargetRef"]["name"] == variant.spec.scale_target_ref.name
        assert f'"{variant.metadata.name}"' in str(scaler).replace("'", '"')
    role = yaml.safe_load((EXAMPLES / "clusterrole.yaml").read_text())
    assert role["metadata"]["labels"] == {AGGREGATION_LABEL: "true"}
    for path in EXAMPLES.iterdir():
        assert f"examples/scaling/{path.name}" in PAGE or path.name in ("policy.yaml", "clusterrole.yaml")
