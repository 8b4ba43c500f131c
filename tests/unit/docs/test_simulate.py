"""docs/simulate.md names every key of a scenario and every field of its JSON; its scenario is one."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from heliotrope_sim.scenario import model, places, requests
from heliotrope_sim.scenario.outcome import Outcome
from heliotrope_sim.scenario.reading import scenario_of
from heliotrope_sim.scenario.statement import Stated
from heliotrope_sim.scenario.summary import Line

PAGE = (Path(__file__).parents[3] / "docs" / "simulate.md").read_text(encoding="utf-8")
KEYS, JSON = PAGE.split("\n## Keys\n")[1].split("\n## JSON\n")
MODELS = [
    model.Scenario,
    model.Policy,
    places.Region,
    places.Intensity,
    places.Site,
    places.PrefillDecode,
    places.Schedulers,
    places.Polls,
    places.DecisionTime,
    requests.RequestClass,
    requests.Lengths,
    requests.Poisson,
    requests.Diurnal,
    requests.Azure,
    requests.Mooncake,
    requests.Trace,
]


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_every_key_is_on_the_page(kind: type[BaseModel]) -> None:
    named = set(re.findall(r"`([a-z_]+)`", KEYS)) | {"kind"} | set(re.findall(r"`\{([a-z_]+):", KEYS))
    assert set(kind.model_fields) - named == set()


@pytest.mark.parametrize("kind", [Outcome, Line, Stated], ids=lambda kind: kind.__name__)
def test_every_field_of_the_json_is_on_the_page(kind: type) -> None:
    named = set(re.findall(r"`([a-z_0-9]+)`", JSON))
    assert {field.name for field in dataclasses.fields(kind)} - named == {"over_time", "trace"} & {
        field.name for field in dataclasses.fields(kind)
    }


def test_the_scenario_on_the_page_is_one() -> None:
    text = PAGE.split("```yaml\n")[1].split("```")[0]
    data = yaml.safe_load(text)
    data["start"] = "2022-06-01T10:00:00Z"
    assert scenario_of(data).name == "Norway and Spain"
