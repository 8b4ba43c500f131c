"""Asks the sources of demand events beside the queue, so that a slow one holds up nothing but its own policy."""

import asyncio
from collections.abc import Callable

from heliotrope.api.v1alpha1.controls import DemandResponse
from heliotrope_operator.kinds.nodepowers import POWER
from heliotrope_operator.parts import Context
from heliotrope_operator.power.gather import power_grant
from heliotrope_operator.power.metrics import PowerMetrics
from heliotrope_operator.power.report import answer_of
from heliotrope_operator.power.sources import DemandSources
from heliotrope_operator.resources import Key, Kind

AT_ONCE = 8
"""Sources that are asked at the same time."""


class DemandController:
    """One question per policy at a time: a reconcile sends it, and another one takes its end."""

    def __init__(self, context: Context, sources: DemandSources, metrics: PowerMetrics) -> None:
        self._context = context
        self._sources = sources
        self._metrics = metrics
        self._room = asyncio.Semaphore(AT_ONCE)
        self._questions: dict[Key, asyncio.Task[float | None]] = {}

    async def reconcile(self, key: Key) -> float | None:
        """See `RegionController.reconcile`. A source is asked only while the policy's namespace is granted power."""
        policy_key = Key(Kind.CARBON_POLICY, key.namespace, key.name)
        question = self._questions.get(policy_key)
        if question is not None:
            if not question.done():
                return None  # its end enqueues the key
            del self._questions[policy_key]
            self._context.enqueue([POWER])
            return question.result()
        policy = self._context.cluster.policies.get(policy_key)
        response = None if policy is None else policy.spec.demand_response
        if policy is None or response is None or not power_grant(self._context.cluster, key.namespace).allowed:
            self._sources.forget(policy_key)
            return None
        task = asyncio.create_task(self._ask(policy_key, response), name=f"demand events of {policy_key}")
        task.add_done_callback(self._ended(key))
        self._questions[policy_key] = task
        return None

    async def close(self) -> None:
        """End all questions."""
        for task in self._questions.values():
            task.cancel()
        await asyncio.gather(*self._questions.values(), return_exceptions=True)

    async def _ask(self, policy_key: Key, response: DemandResponse) -> float | None:
        async with self._room:
            policy = self._context.cluster.policies.get(policy_key)
            status = None if policy is None else policy.status
            answered = answer_of(None if status is None else status.demand_response)
            again_s = await self._sources.ask(policy_key, response, answered)
        failed = self._sources.heard(policy_key, response, answered).failure is not None
        self._metrics.polls.labels("failure" if failed else "success").inc()
        return again_s

    def _ended(self, key: Key) -> Callable[[asyncio.Task[float | None]], None]:
        def enqueue(task: asyncio.Task[float | None]) -> None:
            if not task.cancelled():
                self._context.enqueue([key])

        return enqueue
