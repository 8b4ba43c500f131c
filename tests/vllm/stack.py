"""The picker and Envoy in front of an engine, with the folder of resources that docs/real-engine.md shows."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from e2e.stack import Stack

from heliotrope_sim.demo.fleet import start_picker
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import running_gateway

GUIDE = Path(__file__).parents[2] / "docs" / "real-engine.md"
GUIDE_PORT = "8000"
ENDPOINT = "default/vllm-0"
READY_SECONDS = 60.0


def resources() -> dict[str, str]:
    """The guide's files by name: its YAML blocks that begin with `# NAME.yaml`."""
    return dict(re.findall(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL))


@asynccontextmanager
async def running_stack(folder: Path, engine_port: int) -> AsyncIterator[Stack]:
    """The picker and Envoy; returns when the picker has read the engine's metrics."""
    guide = folder / "resources"
    guide.mkdir()
    for name, content in resources().items():
        (guide / name).write_text(content.replace(f'port: "{GUIDE_PORT}"', f'port: "{engine_port}"'))
    async with AsyncExitStack() as exits:
        picker, ports = await start_picker(folder, guide)
        exits.push_async_callback(picker.stop)
        config = GatewayConfig(pickers=(f"127.0.0.1:{ports.grpc}",))
        gateway = await exits.enter_async_context(running_gateway(config, directory=folder / "envoy"))
        await gateway.wait_for_pickers()
        stack = Stack({}, picker, ports, gateway, guide)
        async with asyncio.timeout(READY_SECONDS):
            while (await stack.state())["endpoints"][0]["running"] is None:
                await asyncio.sleep(0.1)
        yield stack
