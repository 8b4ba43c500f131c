"""Metrics are read by the thread of an HTTP server, whatever the event loop does."""

import asyncio
from dataclasses import fields

from prometheus_client import CollectorRegistry, generate_latest

from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.process import Operator
from heliotrope_operator.settings import OperatorSettings, Parts


async def test_all_parts_can_be_scraped_from_another_thread() -> None:
    metrics = Metrics(CollectorRegistry())
    everything = Parts(**{field.name: True for field in fields(Parts)})
    Operator(OperatorSettings(parts=everything), Kube(None, metrics), metrics)

    page = await asyncio.to_thread(generate_latest, metrics.registry)

    assert b"heliotrope_reconcile_leader" in page
    assert b"heliotrope_allocation_plans" in page
