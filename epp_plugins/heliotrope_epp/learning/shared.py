"""Learning at a trainer that several pickers share: samples go out, models come in, drift is watched here."""

import asyncio
from collections.abc import Iterable
from random import Random

from heliotrope.predict.bundle import parse_bundle
from heliotrope.predict.forest import InvalidModelError
from heliotrope.predict.sample import Sample
from heliotrope_epp.learning.client import ClientSettings, TrainerClient
from heliotrope_epp.learning.drift import DriftWatch
from heliotrope_epp.learning.keeper import ModelKeeper
from heliotrope_epp.learning.settings import TICK_S


class SharedLearning:
    """Takes the place of a `Trainer` of one's own. Owned by the loop's thread."""

    def __init__(
        self,
        settings: ClientSettings,
        keeper: ModelKeeper,
        watch: DriftWatch,
        *,
        random: Random,
        tick_s: float = TICK_S,
    ) -> None:
        self._tick_s = tick_s
        self._keeper = keeper
        self._watch = watch
        self.client = TrainerClient(settings, accept=self._accept, random=random)

    def add(self, samples: Iterable[Sample]) -> None:
        """Send them with the next batch."""
        for sample in samples:
            self.client.add(sample)
            self._watch.add(sample)

    async def run(self) -> None:
        """Use the models of an earlier run until the trainer has others; until cancelled."""
        await self._keeper.load()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.client.run(), name="trainer")
                tasks.create_task(self._watch_for_ever(), name="drift")
        finally:
            await self._keeper.save()

    async def _watch_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            self._watch.observe()

    async def _accept(self, text: bytes) -> str | None:
        try:
            bundle = await asyncio.to_thread(lambda: parse_bundle(text.decode()))
        except (InvalidModelError, UnicodeDecodeError) as error:
            return str(error)
        if bundle.digest != self._keeper.current.digest:
            await self._keeper.promote(bundle)
            self._watch.judged()
            await self._keeper.save()
        return None
