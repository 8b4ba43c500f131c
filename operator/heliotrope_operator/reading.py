"""The API server for who only reads it once: a command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics


@asynccontextmanager
async def opened(kubeconfig: Path | None) -> AsyncIterator[Kube]:
    """A connection that ends with the block.

    Args:
        kubeconfig: None takes the service account in a cluster, else the user's own kubeconfig.

    Raises:
        UnavailableError: if the server does not answer.
        InvalidInputError: if there are no credentials.
    """
    kube = Kube(kubeconfig, Metrics(CollectorRegistry()))
    try:
        await kube.connect()
        yield kube
    finally:
        await kube.close()
