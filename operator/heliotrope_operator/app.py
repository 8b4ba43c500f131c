"""Runs the operator until it is told to stop."""

import asyncio
import contextlib
import logging
import random
import socket
from dataclasses import replace

import uvloop
from prometheus_client import CollectorRegistry, start_http_server

from heliotrope_operator.errors import ApiError
from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.process import Operator
from heliotrope_operator.settings import OperatorSettings
from heliotrope_operator.stopping import stop_on_signals
from heliotrope_operator.workqueue import Backoff

_log = logging.getLogger(__name__)

EXIT_STOPPED = 0
EXIT_FAILED = 1


def run(settings: OperatorSettings) -> int:
    """Run until SIGTERM or SIGINT, or until something fails that only a new start can mend.

    Returns:
        The exit status: 0 when stopped, 1 after a failure, which the log tells.
    """
    return uvloop.run(operate(settings))


async def operate(settings: OperatorSettings, stop: asyncio.Event | None = None) -> int:
    """The same within a running loop; `stop` ends it as a signal does."""
    stop = stop or asyncio.Event()
    stop_on_signals(stop)
    metrics = Metrics(CollectorRegistry())
    settings = replace(settings, health_port=settings.health_port or _free_port(settings.host))
    server, thread = start_http_server(settings.metrics_port, settings.host, registry=metrics.registry)
    _log.info("metrics on port %d, liveness on port %d of %s", server.server_port, settings.health_port, settings.host)
    kube = Kube(settings.kubeconfig, metrics)
    try:
        if not await _connect(kube, stop):
            return EXIT_STOPPED
        stopped = await Operator(settings, kube, metrics).run(stop)
        return EXIT_STOPPED if stopped else EXIT_FAILED
    finally:
        await kube.close()
        server.shutdown()
        thread.join()
        server.server_close()


def _free_port(host: str) -> int:
    """A port that nothing listens on at the moment; Kopf does not let the system choose."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as probe:
        return int(probe.getsockname()[1])


async def _connect(kube: Kube, stop: asyncio.Event) -> bool:
    """Wait for the API server; False if told to stop first."""
    failures, rng, backoff = 0, random.Random(), Backoff(0.5, 15.0)
    while not stop.is_set():
        try:
            server = await kube.connect()
        except ApiError as error:
            failures += 1
            delay_s = backoff.delay_s(failures, rng)
            _log.warning("the API server does not answer (%s); again in %.1f s", error, delay_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await stop.wait()
        else:
            _log.info("connected to %s", server)
            return True
    return False
