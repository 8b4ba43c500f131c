"""From the loop to the collector: a bounded queue, and a thread that makes spans and exports them in batches."""

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from heliotrope_epp.tracing.settings import TracingSettings
from heliotrope_epp.tracing.spans import Pending, SpanMaker

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """Spans since start, by what became of them, and those that wait."""

    exported: int
    dropped: int
    """The queue was full, or the process ended first."""
    failed: int
    """The collector refused them or could not be reached."""
    waiting: int


class SpanQueue:
    """`put` is called on the loop's thread and never blocks; everything else happens in the queue's own thread.

    Whatever the exporter does, slow, failing or hanging, the only effect on the picker is that spans are dropped and
    counted.
    """

    def __init__(self, exporter: SpanExporter, maker: SpanMaker, settings: TracingSettings) -> None:
        self._exporter = exporter
        self._maker = maker
        self._settings = settings
        self._entries: deque[tuple[int, Pending]] = deque()
        self._put = 0
        self._refused = 0
        self._taken = 0
        self._exported = 0
        self._failed = 0
        self._abandoned = 0
        self._wake = threading.Event()
        self._books = threading.Lock()
        """Of the exporting thread and `close`; the loop never takes it."""
        self._closed = False
        self._closing = threading.Event()
        self._deadline_s = float("inf")
        self._thread = threading.Thread(target=self._run, name="trace export", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, pending: Pending) -> None:
        """Queue spans that are still to be made; too many are dropped."""
        count = pending.span_count
        waiting = self._put - self._taken + count
        if self._closing.is_set() or waiting > self._settings.max_queue_spans:
            self._refused += count
            return
        self._put += count
        self._entries.append((count, pending))
        if waiting >= self._settings.max_batch_spans:
            self._wake.set()

    def counts(self) -> SpanCounts:
        """The counters now."""
        return SpanCounts(
            exported=self._exported,
            dropped=self._refused + self._abandoned,
            failed=self._failed,
            waiting=self._put - self._taken - self._abandoned,
        )

    def close(self) -> None:
        """Export what waits, for at most the settings' `flush_s`, and count the rest as dropped. Blocks."""
        self._deadline_s = time.monotonic() + self._settings.flush_s
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(self._settings.flush_s)
        self._exporter.shutdown()
        with self._books:
            self._closed = True
            self._abandoned = self._put - self._taken
        counts = self.counts()
        if counts.dropped or counts.failed:
            fields = {"exported": counts.exported, "dropped": counts.dropped, "failed": counts.failed}
            _log.warning("not all spans were exported", extra={"fields": fields})

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(self._settings.delay_s)
            self._wake.clear()
            self._export_batch()
            while not self._closing.is_set() and self._put - self._taken >= self._settings.max_batch_spans:
                self._export_batch()
        while self._entries and time.monotonic() < self._deadline_s:
            self._export_batch()

    def _export_batch(self) -> None:
        spans: list[ReadableSpan] = []
        count = 0
        while self._entries and count < self._settings.max_batch_spans:
            number, pending = self._entries.popleft()
            count += number
            spans += self._made(number, pending)
        if not count:
            return
        exported = self._sent(spans) if spans else False
        with self._books:
            if self._closed:  # an export that outlasted the end has been counted as dropped
                return
            self._taken += count
            self._exported += len(spans) if exported else 0
            self._failed += count - len(spans) if exported else count

    def _made(self, number: int, pending: Pending) -> list[ReadableSpan]:
        try:
            spans = pending.spans(self._maker)
        except Exception:  # noqa: BLE001 - a defect in one record must not end the thread
            _log.exception("spans of one request could not be made")
            return []
        assert len(spans) == number, f"{type(pending).__name__} made {len(spans)} spans and announced {number}"
        return spans

    def _sent(self, spans: list[ReadableSpan]) -> bool:
        try:
            return self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:  # noqa: BLE001 - an exporter's defect must not end the thread
            _log.exception("an export failed")
            return False
