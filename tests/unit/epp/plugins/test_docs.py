"""`docs/plugins.md` is true: its table is the registry, its code runs."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo

from heliotrope.errors import InvalidInputError
from heliotrope_epp.config.loader import load
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.installed import ENTRY_POINT_GROUP
from heliotrope_epp.plugins.registry import PluginType

TEXT = (Path(__file__).parents[4] / "docs/plugins.md").read_text()
LINE = re.compile(r"^\| `(?P<type>[a-z-]+)` \| (?P<kind>[a-z ]+) \| (?P<stability>\w+) \|(?P<parameters>[^|]*)\|", re.M)


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value) if isinstance(value, tuple) else value)


def row(plugin: PluginType) -> tuple[str, str, str]:
    fields = plugin.parameters.model_fields.items()
    parameters = ", ".join(f"`{field.alias or name}` ({default_of(field)})" for name, field in fields)
    return plugin.kind.value, plugin.stability.value, parameters


def test_the_table_is_the_registry() -> None:
    documented = {m["type"]: (m["kind"], m["stability"], m["parameters"].strip()) for m in LINE.finditer(TEXT)}
    assert documented == {plugin.name: row(plugin) for plugin in builtin_registry()}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.M | re.S)


def test_the_errors_shown_are_those_that_users_get() -> None:
    text = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: quue-scorer}, {type: decode-filter}]
schedulingProfiles:
- name: default
  plugins: [{pluginRef: decode-filter}, {pluginRef: decode-filter}, {pluginRef: decode-filtre}]
"""
    with pytest.raises(InvalidInputError) as caught:
        load(text, builtin_registry())
    assert f"```\n{caught.value}\n```" in TEXT


@pytest.fixture
def tutorial() -> dict[str, Any]:
    plugin, test = blocks("python")
    names: dict[str, Any] = {}
    exec(compile(plugin, "label_preference.py", "exec"), names)
    exec(compile(test, "test_label_preference.py", "exec"), names)
    return names


def test_the_tutorial_runs(tutorial: dict[str, Any]) -> None:
    (config_text,) = blocks("yaml")
    tutorial["test_the_preferred_label_wins"](config_text)


def test_the_tutorials_parameters_are_strict(tutorial: dict[str, Any]) -> None:
    (config_text,) = blocks("yaml")
    registry = builtin_registry()
    tutorial["register"](registry)
    with pytest.raises(InvalidInputError, match=r"plugins\[0\].parameters.preferedValues: .*preferredValues\?"):
        load(config_text.replace("preferredValues", "preferedValues"), registry)


def test_the_tutorials_entry_point_is_the_function_that_registers(tutorial: dict[str, Any]) -> None:
    (text,) = blocks("toml")
    entry_points = tomllib.loads(text)["project"]["entry-points"][ENTRY_POINT_GROUP]
    assert entry_points == {"label-preference": "label_preference:register"}
    assert callable(tutorial["register"])
