"""The user's page on the emulator is true."""

import inspect
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import yaml

from heliotrope_sim.emulator import EmulatorConfig, EngineConfig, ServedEngine
from heliotrope_sim.emulator.admin import AdminApi
from heliotrope_sim.emulator.api import OpenAIApi
from heliotrope_sim.emulator.faults import FaultKind
from heliotrope_sim.emulator.transfer import wire
from heliotrope_sim.emulator.transfer.config import KvTransferConfig
from heliotrope_sim.emulator.transfer.node import TransferNode
from heliotrope_sim.emulator.transfer.page import shared_page
from heliotrope_sim.sidecar.__main__ import main
from heliotrope_sim.sidecar.routes import ROUTING_HEADERS

Serve = Callable[..., Awaitable[ServedEngine]]

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "emulator.md").read_text(encoding="utf-8")
SHARED = (DOCS / "disaggregation.md").read_text(encoding="utf-8")


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


async def test_the_page_on_several_engines_names_routes_keys_options_and_metrics(serve: Serve) -> None:
    paths = [v for k, v in vars(wire).items() if k.endswith("_PATH")]
    assert [path for path in paths if f"`{path}`" not in SHARED] == []
    assert [key for key in KvTransferConfig.model_fields if f"`{key}`" not in SHARED] == []
    options = [f"--{key.replace('_', '-')}" for key in inspect.signature(main).parameters]
    assert [option for option in options if f"`{option}`" not in SHARED] == []
    assert [name for name in ROUTING_HEADERS if f"`{name}`" not in SHARED] == []
    engine = await serve(encoder={}, kv_transfer={})
    node = TransferNode.of(engine.driver, engine.config, KvTransferConfig(), engine.port)
    shown = re.findall(r"# TYPE (\S+) ", shared_page(engine.driver, node))
    await node.close()
    assert [name for name in shown if f"`{name}`" not in SHARED] == []
    (block,) = re.findall(r"# pd.yaml\n(.*?)```", SHARED, re.DOTALL)
    assert len(EmulatorConfig.from_mapping(yaml.safe_load(block)).engines) == 2
