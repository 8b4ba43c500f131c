"""What must hold between the chart's files and the rest of the repository; needs no helm."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.support.chart import CHART

import heliotrope

VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
PASSED_ON = {
    "podSecurityContext",
    "securityContext",
    "picker.config",
    "agent.nodeSelector",
    "agent.resources",
    "agent.watchdog.resources",
    "operator.resources",
    "picker.resources",
    "trainer.resources",
    "hub.resources",
}
"""Values that Kubernetes or the picker describe; the schema names them and no more, or by their own definition."""


def test_chart_images_and_package_have_one_version() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert about["version"] == about["appVersion"] == heliotrope.__version__


def test_no_crd_is_where_helm_would_never_upgrade_it() -> None:
    """Helm itself installs what is in crds/ before the templates, which then cannot own it."""
    assert not (CHART / "crds").exists()


def _leaves(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        here = (*path, key)
        if isinstance(value, dict) and value and ".".join(here) not in PASSED_ON:
            yield from _leaves(value, here)
        else:
            yield here


def _definition(node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        found: dict[str, Any] = SCHEMA["definitions"][node["$ref"].rpartition("/")[2]]
        return found
    return node


def _without_default(node: dict[str, Any], values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    for key, child in node.get("properties", {}).items():
        here = (*path, key)
        if key not in values:
            yield ".".join(here)
        elif isinstance(values[key], dict) and values[key] and ".".join(here) not in PASSED_ON:
            yield from _without_default(_definition(child), values[key], here)


def test_every_key_of_the_schema_has_its_default_in_the_values() -> None:
    """The other direction, a value that the schema does not know, is what `helm lint` refuses."""
    assert list(_without_default(SCHEMA, yaml.safe_load(VALUES))) == ["global"]


def test_every_object_of_the_schema_is_closed() -> None:
    """A misspelt key is an error. Open are only maps with names of the user's own, and what others describe."""

    def check(node: dict[str, Any], path: tuple[str, ...]) -> None:
        described_elsewhere = "properties" not in node or path == ("picker", "config")
        if node.get("type") == "object" and not described_elsewhere:
            assert node.get("additionalProperties") is False, path
        for key, child in node.get("properties", {}).items():
            check(_definition(child), (*path, key))

    check(SCHEMA, ())


@pytest.mark.parametrize("key", [path[-1] for path in _leaves(yaml.safe_load(VALUES))])
def test_every_value_is_explained(key: str) -> None:
    lines = VALUES.splitlines()
    places = [number for number, line in enumerate(lines) if line.strip().startswith(f"{key}:")]
    assert places
    for number in places:
        assert lines[number - 1].strip().startswith("#"), f"line {number + 1} of values.yaml: say what {key} is"
