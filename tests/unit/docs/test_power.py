"""docs/power.md and examples/power against what the code does."""

import json
import re
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope.power.clocks import ClockReason
from heliotrope.power.events import read_events
from heliotrope.power.split import Verdict
from heliotrope_operator.power.metrics import PowerCollector, PowerMetrics
from heliotrope_operator.power.tokens import ORIGIN_ANNOTATION

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "power.md").read_text(encoding="utf-8")
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "operator/heliotrope_operator/power").glob("*.py")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_policies_of_page_and_example_are_valid() -> None:
    texts = [*blocks("yaml"), (ROOT / "examples/power/policy.yaml").read_text(encoding="utf-8")]
    for text in texts:
        policy = parse(yaml.safe_load(text))
        assert isinstance(policy, CarbonPolicy)
        assert policy.spec.power is not None
        assert policy.spec.demand_response is not None


def test_lists_of_events_are_read_whole() -> None:
    (shown,) = blocks("json")
    example = (ROOT / "examples/power/events.json").read_text(encoding="utf-8")
    assert json.loads(shown) == json.loads(example)
    found = read_events(example.encode(), 0.0)
    assert found.problems == ()
    assert [(event.name, event.watts, event.reduction) for event in found.events] == [
        ("evening", 12_000.0, None),
        ("e-7", None, 0.25),
    ]


def test_every_reason_is_explained() -> None:
    reported = {
        reason
        for text in SOURCES
        for reason in re.findall(r'(?:found\.append\(\(|ConditionStatus\.[A-Z]+, )"([A-Z][A-Za-z]+)"', text)
    }
    assert len(reported) > 12
    for reason in [*reported, *(each.value for each in (*ClockReason, *Verdict))]:
        assert f"`{reason}`" in PAGE, reason
    assert ORIGIN_ANNOTATION in PAGE


def test_every_metric_is_listed() -> None:
    registry = CollectorRegistry()
    PowerMetrics(registry)
    registry.register(PowerCollector(list, lambda: None))
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        short = name.replace("heliotrope_power", "…")
        assert name in PAGE or short in PAGE, name
