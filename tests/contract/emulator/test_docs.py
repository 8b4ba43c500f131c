"""The user's page on the emulator is true."""

import re
from pathlib import Path

import yaml

from heliotrope_sim.emulator import EmulatorConfig, EngineConfig, ServedEngine
from heliotrope_sim.emulator.admin import AdminApi
from heliotrope_sim.emulator.api import OpenAIApi
from heliotrope_sim.emulator.faults import FaultKind

PAGE = (Path(__file__).parents[3] / "docs" / "emulator.md").read_text(encoding="utf-8")


def test_its_configuration_is_valid_and_names_every_field() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert [e.region for e in EmulatorConfig.from_mapping(yaml.safe_load(block)).engines] == ["ES", "NO"]
    table = PAGE[PAGE.index("| field |") : PAGE.index("In a Python test")]
    assert set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines() if row))) == set(
        EngineConfig.model_fields
    )


async def test_it_names_every_route_and_fault(engine: ServedEngine) -> None:
    routes = [*OpenAIApi(engine.driver, engine.faults).routes(), *AdminApi(engine.driver, engine.faults).routes()]
    assert [r.path for r in routes if f"{r.path}`" not in PAGE and f"{r.path}?" not in PAGE] == []
    assert [k.value for k in FaultKind if f"`{k.value}`" not in PAGE and f'"{k.value}"' not in PAGE] == []
