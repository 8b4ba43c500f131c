"""docs/signals.md and examples/signals against what the code does."""

import re
from pathlib import Path

import pytest
import yaml

from heliotrope.api.documents import parse
from heliotrope.api.struct import camel
from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.carbonsource import Source
from heliotrope.providers import build
from heliotrope.providers.online import Online
from heliotrope.providers.points import AHEAD_OF_CLOCK_S, MAX_G_PER_KWH
from heliotrope.providers.secrets_folder import SecretsFolder
from heliotrope.providers.timing import SHORTEST_PUBLIC_POLL_S
from heliotrope_operator.controllers.regions import OWN_CONDITIONS
from heliotrope_operator.polling import Outcome

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "signals.md").read_text(encoding="utf-8")
OPERATOR = (ROOT / "docs" / "operator.md").read_text(encoding="utf-8")
EXAMPLES = list(yaml.safe_load_all((ROOT / "examples" / "signals" / "regions.yaml").read_text(encoding="utf-8")))
SOURCES = {camel(name) for name in Source.model_fields}


def region(document: object) -> RegionProfile:
    found = parse(document)
    assert isinstance(found, RegionProfile)
    return found


@pytest.mark.parametrize("document", EXAMPLES, ids=lambda document: document["metadata"]["name"])
def test_every_example_can_be_asked(document: object) -> None:
    build(region(document), started_unix_s=0.0, online=Online(SecretsFolder(None)))


def test_there_is_an_example_of_every_source_of_the_network() -> None:
    shown = {next(iter(document["spec"]["source"])) for document in EXAMPLES}
    assert shown == SOURCES - {"static", "file", "configMap"}


def test_the_table_has_every_source() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", PAGE.split("## Which source")[1].split("\n## ")[0], flags=re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == SOURCES


def test_the_profile_in_the_page_is_one() -> None:
    (document,) = re.findall(r"<<END\n(.*?)\nEND", PAGE, flags=re.DOTALL)
    assert region(yaml.safe_load(document)).spec.source.electricity_maps is not None


def test_the_numbers_in_the_page_are_the_codes() -> None:
    assert f"above {MAX_G_PER_KWH:,.0f} or below zero" in PAGE
    assert AHEAD_OF_CLOCK_S == 600.0
    assert "more than ten minutes ahead of now" in PAGE
    assert SHORTEST_PUBLIC_POLL_S == 60.0
    assert "once a minute at most" in PAGE


def test_outcomes_and_conditions_are_documented() -> None:
    row = next(line for line in OPERATOR.splitlines() if line.startswith("| `carbon_polls_total`"))
    assert set(re.findall(r"[a-z_]+", row.split(":")[1])) == {outcome.value for outcome in Outcome}
    section = OPERATOR.split("**RegionProfile**")[1].split("**CarbonPolicy**")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)) >= {kind.value for kind in OWN_CONDITIONS}
