"""A wrong configuration is refused with the path of what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from heliotrope.engine import profiles
from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator import EmulatorConfig, EngineConfig
from heliotrope_sim.emulator.config import load_model, max_model_len

ENGINE = {"name": "a", "profile": "llama-3.1-70b-h100-tp4"}


def test_yaml_and_json_are_read_alike(tmp_path: Path) -> None:
    yaml_file, json_file = tmp_path / "c.yaml", tmp_path / "c.json"
    yaml_file.write_text("engines:\n- {name: a, profile: p, port: 8000, region: ES, time_scale: 10}\n")
    json_file.write_text(
        json.dumps({"engines": [{"name": "a", "profile": "p", "port": 8000, "region": "ES", "time_scale": 10}]})
    )
    config = EmulatorConfig.from_file(yaml_file)
    assert config == EmulatorConfig.from_file(json_file)
    assert config.engines[0].time_scale == 10


@pytest.mark.parametrize(
    ("data", "path", "says"),
    [
        ({}, "engines", "Field required"),
        ({"engines": []}, "engines", "at least 1"),
        ({"engines": [{"name": "a"}]}, "engines.0.profile", "Field required"),
        ({"engines": [ENGINE | {"time_scale": 0}]}, "engines.0.time_scale", "greater than 0"),
        ({"engines": [ENGINE | {"port": 70000}]}, "engines.0.port", "less than or equal to 65535"),
        ({"engines": [ENGINE | {"prot": 1}]}, "engines.0.prot", "Extra inputs"),
        ({"engines": [ENGINE, ENGINE]}, "", "engine names must be unique; a occurs more than once"),
        (
            {"engines": [ENGINE | {"port": 1}, ENGINE | {"name": "b", "port": 1}]},
            "",
            "127.0.0.1:1 occurs more than once",
        ),
    ],
)
def test_wrong_fields_are_named(data: dict[str, Any], path: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        EmulatorConfig.from_mapping(data)
    assert error.value.path == path
    assert says in error.value.problem


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "cannot be read"), ("{", "neither YAML nor JSON"), ("- 1", "must hold a mapping"), ("", "must hold")],
)
def test_unreadable_files_are_named(tmp_path: Path, text: str | None, says: str) -> None:
    file = tmp_path / "emulator.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidInputError, match=says) as error:
        EmulatorConfig.from_file(file)
    assert error.value.path == str(file)


def test_a_profile_may_be_a_file(tmp_path: Path) -> None:
    shipped = profiles.load("llama-3.1-70b-h100-tp4")
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"model": shipped.to_mapping()}))
    assert load_model(EngineConfig(name="a", profile=str(file))) == shipped


@pytest.mark.parametrize(("text", "says"), [(None, "cannot be read"), ("{", "not JSON"), ("[]", "the key 'model'")])
def test_a_bad_profile_file_is_named(tmp_path: Path, text: str | None, says: str) -> None:
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidInputError, match=says) as error:
        load_model(EngineConfig(name="a", profile=str(file)))
    assert error.value.path == "profile"


def test_the_context_is_bounded_by_the_kv_memory() -> None:
    model = profiles.load("llama-3.1-70b-h100-tp4")
    assert max_model_len(EngineConfig.model_validate(ENGINE), model) <= model.kv_capacity_tokens
    with pytest.raises(InvalidInputError) as error:
        max_model_len(EngineConfig.model_validate(ENGINE | {"max_model_len": model.kv_capacity_tokens + 1}), model)
    assert error.value.path == "max_model_len"
