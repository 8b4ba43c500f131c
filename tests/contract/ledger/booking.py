"""A process that books one millijoule after another and says after each what it has booked, until it is killed.

Its arguments are the folder and the size of a segment. Each line of its output: how many millijoules are booked, how
many of them were booked before the oldest entry that is still in memory alone, and how many seconds ago that was.
"""

import os
import sys
import time
from collections import deque
from pathlib import Path

from tests.unit.epp.ledger.builders import metered, store

from heliotrope_epp.clock import Clock
from heliotrope_epp.ledger.ledger import Ledger
from heliotrope_epp.ledger.places import Places
from heliotrope_epp.ledger.settings import LedgerSettings
from heliotrope_epp.ledger.writer import LedgerWriter


def main(folder: Path, segment_bytes: int) -> None:
    clock = Clock()
    settings = LedgerSettings(folder, flush_seconds=0.05, segment_bytes=segment_bytes)
    ledger = Ledger(Places(store()), settings, clock)
    writer = LedgerWriter(ledger, settings, clock)
    writer.start()
    booked, durable = 0, 0
    moments: deque[tuple[float, int]] = deque()
    while True:
        now = clock.unix()
        ledger.metered(
            metered(
                start_unix_s=now - 0.002,
                end_unix_s=now,
                total_millijoules=3,
                requests_millijoules=1,
                others_millijoules=0,
                idle_millijoules=2,
                unattributed_millijoules=0,
            )
        )
        booked += 3
        moments.append((clock.monotonic(), booked))
        before = clock.monotonic()
        oldest = before - writer.unwritten_seconds
        while moments and moments[0][0] < oldest - 0.001:
            durable = moments.popleft()[1]
        os.write(1, f"{booked} {durable} {before - oldest}\n".encode())
        time.sleep(0.001)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
