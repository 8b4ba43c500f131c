"""The models that answer now: where they come from, how they are replaced, and that they survive a restart."""

import asyncio
import logging
from collections import deque

from heliotrope.predict.bundle import EMPTY, Bundle
from heliotrope.predict.models import LearnedModels
from heliotrope_epp.learning.holder import ModelHolder
from heliotrope_epp.learning.store import MAX_RECORDS, Learned, Store
from heliotrope_epp.learning.verdicts import TrainingRecord

_log = logging.getLogger(__name__)


class ModelKeeper:
    """Owned by the loop's thread; reading, compiling and writing happen on others."""

    def __init__(self, holder: ModelHolder, store: Store) -> None:
        self.holder = holder
        self.store = store
        self.records: deque[TrainingRecord] = deque(maxlen=MAX_RECORDS)
        """What became of the trainings, oldest first; survives a restart."""
        self._saved: tuple[Bundle, Bundle | None, tuple[TrainingRecord, ...]] = (EMPTY, None, ())
        self.promotions = 0
        """Since start."""

    @property
    def current(self) -> Bundle:
        """The promoted models; without any, `EMPTY`."""
        return self.holder.current.current

    async def load(self) -> Learned:
        """Take up what an earlier process left; a file that cannot be used is left out."""
        learned = await asyncio.to_thread(self.store.load)
        self.records.extend(learned.records)
        self._saved = (learned.current, learned.previous, tuple(self.records))
        if learned.current.created_unix_s:
            self.holder.current = await asyncio.to_thread(_ready, learned.current, learned.previous)
            _log.info("learned models of an earlier run are used", extra={"fields": _fields(learned.current)})
        return learned

    async def promote(self, bundle: Bundle) -> None:
        """Let these models answer from now on and keep the ones before them."""
        self.holder.current = await asyncio.to_thread(_ready, bundle, self.current)
        self.promotions += 1
        _log.info("learned models are promoted", extra={"fields": _fields(bundle)})

    async def save(self) -> None:
        """Write models and records, unless they are on disk as they are."""
        models, records = self.holder.current, tuple(self.records)
        state = (models.current, models.previous, records)
        if state != self._saved and await asyncio.to_thread(self.store.save_models, *state):
            self._saved = state

    async def reset(self, now_unix_s: float) -> None:
        """Forget all models: everything is analytic again, also at the pickers that fetch from here."""
        self.holder.current = LearnedModels(Bundle(now_unix_s, {}))
        self.records.clear()
        _log.info("learned models are forgotten")
        await self.save()


def _ready(current: Bundle, previous: Bundle | None) -> LearnedModels:
    models = LearnedModels(current, previous)
    models.warm_up()
    return models


def _fields(bundle: Bundle) -> dict[str, object]:
    return {"digest": bundle.digest[:12], "targets": sorted(bundle.models), "created_unix_s": bundle.created_unix_s}
