"""The picker's side of a shared trainer: samples out in batches, models in when they change; serving never waits."""

import asyncio
import hashlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

import aiohttp

from heliotrope.predict.sample import Sample
from heliotrope_epp.datalayer.backoff import Backoff
from heliotrope_epp.learning import wire

SAMPLES_PATH = "/add_training_data_bulk"
MODEL_PATH = "/model/download"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a trainer is asked."""

    url: str
    batch_interval_s: float = 1.0
    max_batch: int = 250
    max_queue: int = 20_000
    """Samples that wait for the trainer; the oldest are dropped beyond."""
    poll_interval_s: float = 5.0
    timeout_s: float = 10.0
    first_retry_s: float = 1.0
    longest_retry_s: float = 60.0
    max_model_bytes: int = 64 * 1024 * 1024
    last_send_s: float = 2.0
    """At shutdown: how long to try to send what still waits."""


@dataclass(slots=True)
class ClientCounts:
    """Counts since start."""

    sent: int = 0
    dropped: int = 0
    """The queue was full."""
    undeliverable: int = 0
    """The trainer will never take them: it said so."""


class _TrainerError(Exception):
    """A call gave nothing; the message says why. `permanent`: the same call would fail again."""

    def __init__(self, detail: str, *, permanent: bool = False) -> None:
        super().__init__(detail)
        self.permanent = permanent


class TrainerClient:
    """Talks to one trainer. `accept` is given the text of each new model and returns why it cannot be used, or None."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        accept: Callable[[bytes], Awaitable[str | None]],
        random: Random | None = None,
    ) -> None:
        self._settings = settings
        self._accept = accept
        self._random = random or Random()
        self._queue: deque[Sample] = deque()
        self._sending: Sequence[Sample] = ()
        """The batch that the trainer has not confirmed."""
        self._etag: str | None = None
        self.counts = ClientCounts()
        self.polls: Counter[str] = Counter()
        """By result: `new`, `unchanged`, `none`, `refused`, `failed`."""
        self.problems: dict[str, str] = {}
        """Why the last call of a kind, `samples` or `model`, gave nothing; a kind that works is not in it."""

    @property
    def waiting(self) -> int:
        """Samples that are not confirmed yet."""
        return len(self._queue) + len(self._sending)

    def add(self, sample: Sample) -> None:
        """Send it with the next batch."""
        if len(self._queue) >= self._settings.max_queue:
            self._queue.popleft()
            self.counts.dropped += 1
        self._queue.append(sample)

    async def run(self) -> None:
        """Send and poll until cancelled; then try once more to send what waits."""
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout_s),
            headers={"User-Agent": "heliotrope-epp"},
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as session:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._send_for_ever(session), name="samples to the trainer")
                    tasks.create_task(self._poll_for_ever(session), name="models from the trainer")
            finally:
                await self._send_last(session)

    async def _send_for_ever(self, session: aiohttp.ClientSession) -> None:
        backoff = self._backoff()
        wait_s = self._settings.batch_interval_s
        while True:
            await asyncio.sleep(wait_s)
            wait_s = self._settings.batch_interval_s
            try:
                while self.waiting:
                    await self._send_batch(session)
                    backoff.succeeded()
            except _TrainerError as error:
                self._failed("samples", str(error))
                wait_s = backoff.failed()

    async def _send_batch(self, session: aiohttp.ClientSession) -> None:
        if not self._sending:
            count = min(len(self._queue), self._settings.max_batch)
            self._sending = [self._queue.popleft() for _ in range(count)]
        body = await asyncio.to_thread(wire.encode, self._sending)
        try:
            await self._post(session, body)
        except _TrainerError as error:
            if not error.permanent:
                raise
            self.counts.undeliverable += len(self._sending)
            self._sending = ()
            raise
        self.counts.sent += len(self._sending)
        self._sending = ()
        self._works("samples")

    async def _post(self, session: aiohttp.ClientSession, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(
                self._url(SAMPLES_PATH), data=body, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status // 100 != 2:
                    said = (await answer.content.read(500)).decode(errors="replace").strip()
                    permanent = answer.status // 100 == 4 and answer.status not in (408, 425, 429)
                    raise _TrainerError(f"HTTP {answer.status} to samples: {said}", permanent=permanent)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _TrainerError(_words(error)) from error

    async def _send_last(self, session: aiohttp.ClientSession) -> None:
        try:
            async with asyncio.timeout(self._settings.last_send_s):
                while self.waiting:
                    await self._send_batch(session)
        except (_TrainerError, TimeoutError):
            _log.warning("samples that the trainer did not get", extra={"fields": {"samples": self.waiting}})

    async def _poll_for_ever(self, session: aiohttp.ClientSession) -> None:
        backoff = self._backoff()
        wait_s = 0.0
        while True:
            await asyncio.sleep(wait_s)
            try:
                result = await self._poll(session)
            except _TrainerError as error:
                self.polls["failed"] += 1
                self._failed("model", str(error))
                wait_s = backoff.failed()
                continue
            self.polls[result] += 1
            self._works("model")
            backoff.succeeded()
            # Pickers that started together do not ask together.
            wait_s = self._settings.poll_interval_s * self._random.uniform(0.75, 1.25)

    async def _poll(self, session: aiohttp.ClientSession) -> str:
        headers = {} if self._etag is None else {"If-None-Match": self._etag}
        try:
            async with session.get(self._url(MODEL_PATH), headers=headers, allow_redirects=False) as answer:
                if answer.status == 304:
                    return "unchanged"
                if answer.status == 404:
                    return "none"
                if answer.status != 200:
                    raise _TrainerError(f"HTTP {answer.status} to the model")
                etag = answer.headers.get("ETag", "")
                text = await self._text(answer)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _TrainerError(_words(error)) from error
        digest = await asyncio.to_thread(etag_of, text)
        if digest != etag:
            raise _TrainerError(f"the model's digest is not the one that was announced ({etag or 'none'})")
        refusal = await self._accept(text)
        # Refused or not, the same text would have the same end.
        self._etag = etag
        if refusal is None:
            return "new"
        _log.warning("a model of the trainer is refused", extra={"fields": {"etag": etag, "why": refusal}})
        return "refused"

    async def _text(self, answer: aiohttp.ClientResponse) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in answer.content.iter_any():
            size += len(chunk)
            if size > self._settings.max_model_bytes:
                answer.close()
                raise _TrainerError(f"the model exceeds {self._settings.max_model_bytes} bytes")
            chunks.append(chunk)
        return b"".join(chunks)

    def _url(self, path: str) -> str:
        return self._settings.url.rstrip("/") + path

    def _backoff(self) -> Backoff:
        return Backoff(self._settings.first_retry_s, self._settings.longest_retry_s, self._random)

    def _failed(self, call: str, problem: str) -> None:
        if call not in self.problems:
            fields = {"url": self._settings.url, "call": call, "problem": problem}
            _log.warning("the trainer does not help", extra={"fields": fields})
        self.problems[call] = problem

    def _works(self, call: str) -> None:
        if self.problems.pop(call, None) is not None:
            _log.info("the trainer helps again", extra={"fields": {"url": self._settings.url, "call": call}})


def etag_of(text: bytes) -> str:
    """The entity tag of a model's text: its digest."""
    return f'"sha256:{hashlib.sha256(text).hexdigest()}"'


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
