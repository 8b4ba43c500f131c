import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sim.scenario.conftest import SCENARIO, Changed

from heliotrope.errors import InvalidInputError
from heliotrope_sim.scenario.reading import parse, read, scenario_of, schema


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: [", "s.yaml:1: is not YAML"),
        ("- a", "s.yaml: must be a mapping"),
        ("name: a\nname: b\n", "s.yaml:2: is not YAML: the key 'name' occurs twice"),
        ("a: {b: 1, b: 2}", "the key 'b' occurs twice"),
    ],
)
def test_what_is_no_mapping_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        parse(text, "s.yaml")
    assert says in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"none\.yaml: cannot be read: No such file"):
        read(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="is not UTF-8"):
        read(tmp_path / "bytes.yaml")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"polices": []}, "polices: unknown key"),
        ({"name": None}, "name: must be a string"),
        ({"seed": "seven"}, "seed: must be a whole number"),
        ({"start": "2022-06-01T10:00:00"}, "start: "),
        ({"sites": []}, "sites: "),
        ({"sites": [{"region": "spain", "engine": "x", "nodes": 0}]}, "sites[0].nodes: "),
        ({"regions": [{"name": "a", "pue": 0.9}]}, "regions[0].pue: "),
        ({"regions": [{"name": False}]}, "regions[0].name: must be a string; put it in quotes"),
        ({"regions": [{"name": "a", "pue": float("nan")}]}, "regions[0].pue: must be a finite number"),
        ({"regions": [{"name": "a", "intensity": {}}]}, "set exactly one of zone, csv and grams_per_kwh"),
        ({"regions": [{"name": "a", "intensity": {"csv": "a.csv"}}]}, "csv and value_column belong together"),
        ({"policies": [{"name": "a"}]}, "policies[0]: set file, scheduler or both"),
        ({"policies": [{"name": "a", "scheduler": "Greedy"}] * 2}, "policies: names must be unique; a occurs"),
        ({"baseline": "none"}, "baseline: 'none' is none of the policies"),
        ({"schedulers": {"where": "home"}}, "schedulers: home belongs to where: home"),
        ({"workload": {"rate_per_second": 1}}, "workload.kind: required: poisson"),
        ({"workload": {"kind": "poisson", "duration_seconds": 1}}, "workload.rate_per_second: required"),
        ({"workload": {"kind": "poisson", "rate_per_second": -1, "duration_seconds": 1}}, "workload.rate_per_second: "),
        ({"workload": {"kind": "poison"}}, "workload: "),
        ({"polls": {"interval_seconds": 0}}, "polls.interval_seconds: "),
    ],
)
def test_bad_keys_and_values_are_told_with_their_path(changes: dict[str, Any], says: str, changed: Changed) -> None:
    with pytest.raises(InvalidInputError) as error:
        scenario_of(changed.data(**changes))
    assert says in str(error.value)


def test_all_that_is_wrong_is_told_at_once(changed: Changed) -> None:
    with pytest.raises(InvalidInputError) as error:
        scenario_of(changed.data(a=1, b=2, c=3, d=4, e=5, f=6))
    assert "and 1 more" in str(error.value)


def test_yaml_times_are_read(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    data, _ = read(path)
    assert scenario_of(data).start.isoformat() == "2022-06-01T10:00:00+00:00"


def test_the_schema_has_every_key_with_its_description() -> None:
    made = json.loads(schema())
    assert {"name", "regions", "sites", "policies", "workload", "sweep"} <= made["properties"].keys()
    assert made["additionalProperties"] is False
    assert "RegionProfiles" in made["properties"]["region_files"]["description"]
    assert {"Poisson", "Trace", "Azure", "Mooncake", "Diurnal"} <= made["$defs"].keys()
