"""The ledger's two threads: one writes batches, the other compacts what is closed. The event loop waits for neither."""

import logging
import threading
import uuid
from dataclasses import dataclass

import duckdb

from heliotrope_epp.clock import Clock
from heliotrope_epp.ledger.compaction import compact, retain
from heliotrope_epp.ledger.journal import FOLDER, Journal, sync_folder
from heliotrope_epp.ledger.ledger import Batch, Ledger
from heliotrope_epp.ledger.rows import row
from heliotrope_epp.ledger.settings import LedgerSettings

_FIRST_RETRY_S = 0.5
_LONGEST_RETRY_S = 10.0
_COMPACTION_INTERVAL_S = 60.0
_JOIN_S = 20.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Health:
    """What the threads did. Each field is written by one of them."""

    rows_written: int = 0
    write_failures: int = 0
    lost_rows: int = 0
    """That could not be written before the end of the process."""
    segments_compacted: int = 0
    torn_batches: int = 0
    compaction_failures: int = 0
    bytes: int = 0
    files_deleted: int = 0


class LedgerWriter:
    """Takes from a ledger and keeps its folder. Start and stop it once."""

    def __init__(self, ledger: Ledger, settings: LedgerSettings, clock: Clock) -> None:
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._journal = Journal(settings.folder, uuid.uuid4().hex[:12], settings.segment_bytes)
        self._stop = threading.Event()
        self._compact = threading.Event()
        self._unwritten: Batch = {}
        self._unwritten_since_s: float | None = None
        self._threads = (
            threading.Thread(target=self._write, name="ledger writer", daemon=True),
            threading.Thread(target=self._keep_compact, name="ledger compaction", daemon=True),
        )
        self.health = Health()

    def start(self) -> None:
        """Begin to write.

        Raises:
            OSError: if the folder cannot be created or written.
        """
        # The folder is a ledger from now on, if an empty one.
        journal = self._settings.folder / FOLDER
        journal.mkdir(parents=True, exist_ok=True)
        probe = journal / f".probe-{uuid.uuid4().hex}"
        probe.touch()
        probe.unlink()
        sync_folder(self._settings.folder)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Write what is left, compact it and end; call it off the event loop."""
        self._stop.set()
        self._threads[0].join(_JOIN_S)
        self._compact.set()
        self._threads[1].join(_JOIN_S)

    @property
    def writing(self) -> bool:
        """Whether entries are still taken to the disk."""
        return self._threads[0].is_alive()

    @property
    def unwritten_seconds(self) -> float:
        """How long the oldest entry is in memory alone; 0 if everything is on the disk."""
        since = self._unwritten_since_s
        on_hand = 0.0 if since is None else max(self._clock.monotonic() - since, 0.0)
        return max(on_hand, self._ledger.waiting_seconds)

    def _write(self) -> None:
        pause_s, ended = self._settings.flush_seconds, False
        while not ended:
            ended = self._stop.wait(pause_s)
            try:
                self._flush()
                pause_s = self._settings.flush_seconds
            except OSError as error:
                if self.health.write_failures == 0 or pause_s <= self._settings.flush_seconds:
                    _log.error("the ledger cannot be written: %s; it is tried again", error)
                self.health.write_failures += 1
                pause_s = min(max(2.0 * pause_s, _FIRST_RETRY_S), _LONGEST_RETRY_S)
            except Exception:  # noqa: BLE001 - a batch with a defect must not stop those after it
                self.health.lost_rows += len(self._unwritten)
                _log.exception("%d rows of the ledger are lost: they cannot be written", len(self._unwritten))
                self._unwritten = {}
                self._unwritten_since_s = None
        self._journal.close()
        lost = len(self._unwritten) + len(self._ledger.take())
        if lost:
            self.health.lost_rows += lost
            _log.error("%d rows of the ledger are lost: they could not be written before the end", lost)

    def _flush(self) -> None:
        """Write the batch on hand, then all that came since; a failed batch stays on hand as it is."""
        now = self._clock.unix()
        if self._unwritten:
            self._append(now)
        if self._journal.rotate_if_due(now):
            self._compact.set()
        # Before the entries are taken, so that at no moment they seem to be written.
        self._unwritten_since_s = self._clock.monotonic() - self._ledger.waiting_seconds
        self._unwritten = self._ledger.take()
        if self._unwritten:
            self._append(now)
        else:
            self._unwritten_since_s = None

    def _append(self, now_unix_s: float) -> None:
        slot, picker = self._settings.slot_seconds, self._settings.picker
        rows = [row(key, amounts, slot, picker) for key, amounts in self._unwritten.items()]
        self._journal.append(rows, now_unix_s)
        self.health.rows_written += len(self._unwritten)
        self._unwritten = {}
        self._unwritten_since_s = None

    def _keep_compact(self) -> None:
        while True:
            # Asked first: a segment that is closed while this compacts is left for one more time.
            last = self._stop.is_set() and not self.writing
            self._compact_once()
            if last:
                return
            self._compact.wait(_COMPACTION_INTERVAL_S)
            self._compact.clear()

    def _compact_once(self) -> None:
        s = self._settings
        try:
            done = compact(s.folder)
            self.health.segments_compacted += done.segments
            self.health.torn_batches += done.torn_batches
            if done.torn_batches:
                _log.warning("%d batches of the ledger were cut off by the end of a process", done.torn_batches)
            kept = retain(s.folder, s.max_bytes, s.max_days, self._clock.unix())
            self.health.bytes = kept.bytes
            self.health.files_deleted += kept.deleted_files
        except (OSError, duckdb.Error):
            self.health.compaction_failures += 1
            _log.exception("the ledger's journal is not compacted; it is tried again and nothing is lost")
