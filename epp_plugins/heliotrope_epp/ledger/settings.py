"""Where the ledger lies and how much it may take."""

import platform
from dataclasses import dataclass, field
from pathlib import Path

SLOT_SECONDS = 300
"""Marginal signals come every five minutes."""


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Settings of one picker's ledger."""

    folder: Path
    slot_seconds: int = SLOT_SECONDS
    """Length of a slot; shorter for a replay that plays faster than real time."""
    flush_seconds: float = 0.5
    """How long what was counted stays in memory alone; the time of a write comes on top."""
    segment_bytes: int = 32 * 1024 * 1024
    """Size at which a segment of the journal is compacted before its hour is over."""
    max_bytes: int = 1024 * 1024 * 1024
    """Size of the folder from which the oldest Parquet files are deleted."""
    max_days: float = 400.0
    """Age from which Parquet files are deleted."""
    picker: str = field(default_factory=platform.node)
    """Who writes: in a cluster the pod's name."""
    max_labels: int = 1_000
    """Tenants, models and request classes that are told apart, each; the rest counts as `other`."""
    max_rows: int = 10_000
    """Rows that may wait for the disk; what comes beyond goes to the line `unrecorded`, by region and hour."""
