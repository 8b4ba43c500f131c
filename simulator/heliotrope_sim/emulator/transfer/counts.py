"""What an engine's transfers show on /metrics: the names and buckets of vLLM's NixlConnector, and our own."""

from enum import StrEnum

from heliotrope_sim.emulator.exposition import Histogram, Page
from heliotrope_sim.engine.fixed_point import seconds

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)
_BYTES = tuple(2 ** (10 + i) for i in range(1, 25, 2))
_DESCRIPTORS = (10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000)


class FailureReason(StrEnum):
    """Why KV or an embedding did not come."""

    PARAMS = "params"
    """The request asks for a transfer that cannot be tried."""
    UNREACHABLE = "unreachable"
    """The other engine did not answer in time."""
    REFUSED = "refused"
    """It does not hold what was asked for, or it does not fit."""
    EMBEDDING = "embedding"
    """An encoder does not have an embedding any more."""


class TransferCounts:
    """An engine's reads, in engine time."""

    def __init__(self) -> None:
        self.failures = dict.fromkeys(FailureReason, 0)
        self.failed_notifications = 0
        """Signs of life and releases that did not reach the holder."""
        self._seconds = Histogram(_SECONDS[1:])
        self._post_seconds = Histogram(_SECONDS)
        self._bytes = Histogram(_BYTES)
        self._descriptors = Histogram(_DESCRIPTORS)

    def moved(self, duration_ns: int, latency_seconds: float, size_bytes: int, blocks: int) -> None:
        """Count a read."""
        self._seconds.observe(seconds(duration_ns))
        self._post_seconds.observe(latency_seconds)
        self._bytes.observe(size_bytes)
        self._descriptors.observe(blocks)

    def failed(self, reason: FailureReason) -> None:
        """Count a read that came to nothing."""
        self.failures[reason] += 1

    def write(self, page: Page, label_text: str, *, expired: int) -> None:
        """The families of vLLM's connector and the reasons of failures.

        Args:
            page: where to.
            label_text: of the engine.
            expired: holds that nobody read in time.
        """
        for name, help_text, histogram in (
            ("xfer_time_seconds", "Histogram of transfer duration for NIXL KV Cache transfers.", self._seconds),
            ("post_time_seconds", "Histogram of transfer post time for NIXL KV Cache transfers.", self._post_seconds),
            ("bytes_transferred", "Histogram of bytes transferred per NIXL KV Cache transfers.", self._bytes),
            ("num_descriptors", "Histogram of number of descriptors per NIXL  KV Cache transfers.", self._descriptors),
        ):
            page.histogram(f"vllm:nixl_{name}", help_text, label_text, histogram)
        for name, help_text, value in (
            ("num_failed_transfers", "Number of failed NIXL KV Cache transfers.", sum(self.failures.values())),
            (
                "num_failed_notifications",
                "Number of failed NIXL KV Cache notifications.",
                self.failed_notifications,
            ),
            (
                "num_kv_expired_reqs",
                "Number of requests that had their KV expire. NOTE: This metric is tracked on the P instance.",
                expired,
            ),
        ):
            page.family(f"vllm:nixl_{name}_total", "counter", help_text, [(label_text, value)])
        page.family(
            "heliotrope_emulator_transfer_failures_total",
            "counter",
            "KV and embeddings that did not come from another engine, by reason.",
            [(f'{label_text},reason="{reason}"', count) for reason, count in self.failures.items()],
        )
