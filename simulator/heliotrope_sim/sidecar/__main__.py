"""`python -m heliotrope_sim.sidecar`: a routing sidecar in front of one engine until a signal comes."""

import asyncio
import json
import logging
import signal
import sys

import uvloop
from cyclopts import App
from pydantic import ValidationError

from heliotrope.errors import HeliotropeError
from heliotrope_sim.sidecar.config import ECConnector, SidecarConfig
from heliotrope_sim.sidecar.server import Sidecar

app = App(name="heliotrope-sidecar", help="Serve a decode engine's port as llm-d's routing sidecar does.")


@app.default
def main(
    *,
    decoder_url: str,
    host: str = "127.0.0.1",
    port: int = 0,
    ec_connector: ECConnector | None = None,
    enable_p2p_pull: bool = False,
    p2p_connector_port: int | None = None,
    allowed_targets: str | None = None,
    prefill_max_retries: int = 0,
    prefill_retry_backoff_seconds: float = 0.1,
    prefill_fallback: bool = False,
    prefill_timeout_seconds: float = 600.0,
) -> int:
    """Serve until SIGTERM or SIGINT. Prints one line of JSON with the address when it listens.

    Args:
        decoder_url: The engine behind it, for example http://127.0.0.1:8200.
        host: Where to listen.
        port: Where to listen; 0 is any free port.
        ec_connector: How embeddings come from encoders; without it, headers that name encoders are ignored.
        enable_p2p_pull: Honour the header that names a KV cache source.
        p2p_connector_port: Port of KV cache sources; by default the one that the header names.
        allowed_targets: Hosts, or hosts with port, that headers may name, separated by commas; by default any.
        prefill_max_retries: Further attempts after 502, 503 or 504 of a prefiller.
        prefill_retry_backoff_seconds: Pause between attempts.
        prefill_fallback: Serve locally when the prefiller fails, instead of passing its error on.
        prefill_timeout_seconds: Longest wait for a prefiller or an encoder.

    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        config = SidecarConfig(
            decoder_url=decoder_url,
            host=host,
            port=port,
            ec_connector=ec_connector,
            enable_p2p_pull=enable_p2p_pull,
            p2p_connector_port=p2p_connector_port,
            allowed_targets=SidecarConfig.named(allowed_targets),
            prefill_max_retries=prefill_max_retries,
            prefill_retry_backoff_seconds=prefill_retry_backoff_seconds,
            prefill_fallback=prefill_fallback,
            prefill_timeout_seconds=prefill_timeout_seconds,
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        sys.stderr.write(f"--{'.'.join(map(str, first['loc'])).replace('_', '-')}: {first['msg']}\n")
        return 2
    except HeliotropeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


async def _serve(config: SidecarConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Sidecar(config) as sidecar:
        sys.stdout.write(json.dumps({"url": sidecar.url, "decoder_url": config.decoder_url}) + "\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    sys.exit(app())
