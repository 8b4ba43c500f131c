"""`python -m heliotrope_sim.emulator`: serve emulated engines until a signal comes."""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

import uvloop
from cyclopts import App

from heliotrope.errors import HeliotropeError
from heliotrope_sim.emulator.config import EmulatorConfig, EngineConfig
from heliotrope_sim.emulator.config_help import help_text
from heliotrope_sim.emulator.server import Emulator, addresses

PARENT_POLL_SECONDS = 0.25

app = App(name="heliotrope-emulator", help="Serve emulated vLLM engines.")


@app.default
def main(*, config: Path, die_with_parent: bool = False) -> int:
    """Serve the engines of a configuration file until SIGTERM or SIGINT.

    Prints one line of JSON with the addresses when all of them listen.

    Args:
        config: YAML or JSON file with the key `engines`.
        die_with_parent: Stop when the process that started this one ends.

    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    parent = os.getppid() if die_with_parent else None
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(EmulatorConfig.from_file(config), parent))
    except HeliotropeError as error:
        sys.stderr.write(f"{config}: {error}\n")
        return 2
    return 0


async def _serve(config: EmulatorConfig, parent: int | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Emulator(config) as emulator:
        sys.stdout.write(json.dumps(addresses(list(emulator.engines.values()))) + "\n")
        sys.stdout.flush()
        if parent is None:
            await stop.wait()
            return
        while not stop.is_set() and os.getppid() == parent:
            try:
                await asyncio.wait_for(stop.wait(), PARENT_POLL_SECONDS)
            except TimeoutError:
                continue


if __name__ == "__main__":
    app.help_epilogue = help_text(EngineConfig)
    sys.exit(app())
