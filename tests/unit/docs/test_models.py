"""docs/models.md and examples/models.yaml against what the code does."""

from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope.decide.from_resources import decision_policy
from heliotrope.decide.quality import Lower, Predictor
from heliotrope.predict import task_class
from heliotrope.predict.reasoning import Effort
from heliotrope_epp.director.models import EFFORT_HEADER, MODEL_HEADER, REASON_HEADER
from heliotrope_epp.plugins.models.predictor import DEFAULT_CORE_WATTS
from heliotrope_epp.plugins.models.router import TASK_HEADER
from heliotrope_epp.plugins.models.scorer import MAX_PROMPT_BYTES, ScorerSettings
from heliotrope_epp.telemetry.models import ModelCounters

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/models.md").read_text(encoding="utf-8")


def test_the_example_is_a_policy_and_means_what_it_says() -> None:
    policy = parse(yaml.safe_load((ROOT / "examples/models.yaml").read_text(encoding="utf-8")))
    assert isinstance(policy, CarbonPolicy)
    rules = decision_policy(policy).models
    assert rules is not None
    assert (rules.floor, rules.predictor, rules.classes) == (0.85, Predictor.TABLE, {"batch"})
    assert (rules.lower, rules.lowest) == (Lower.UNSAID, Effort.LOW)
    (group,) = rules.groups.values()
    assert group.default.model == "llama-70b"
    adapter = group.members[2]
    assert (adapter.served_by, adapter.stated_quality("code"), adapter.stated_quality("law")) == (
        "llama-8b",
        0.55,
        0.78,
    )
    assert group.members[0].levels[0].output_share == 0.45


def test_models_that_are_not_enabled_are_no_rules() -> None:
    document = yaml.safe_load((ROOT / "examples/models.yaml").read_text(encoding="utf-8"))
    document["spec"]["models"]["enabled"] = False
    policy = parse(document)
    assert isinstance(policy, CarbonPolicy)
    assert decision_policy(policy).models is None


@pytest.mark.parametrize("name", [MODEL_HEADER, REASON_HEADER, EFFORT_HEADER, TASK_HEADER])
def test_the_page_names_the_headers(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_page_names_the_metrics_and_the_limits() -> None:
    registry = CollectorRegistry()
    ModelCounters(registry)
    for family in registry.collect():
        assert f"`{family.name}_total" in PAGE
    settings = ScorerSettings("http://x")
    assert f"last {MAX_PROMPT_BYTES // 1024} KiB of each prompt" in PAGE
    assert f"at most {settings.max_waiting} wait at once" in PAGE
    assert f"alone for {settings.first_rest_s:g} s, up to\n{settings.longest_rest_s:g} s" in PAGE
    assert f"({DEFAULT_CORE_WATTS:g} W a core by default" in PAGE
    assert f"`long` ({task_class.LONG_BYTES:,} bytes)" in PAGE
    assert f"the last {task_class.SAMPLE_BYTES // 1024} KiB are read" in PAGE
