"""Which requests are recorded: OpenTelemetry's standard samplers as one rule."""

from dataclasses import dataclass

_BITS = 1 << 64


@dataclass(frozen=True, slots=True)
class Sampler:
    """Records a share of the traces, decided by the trace id so that all services decide alike."""

    ratio: float = 0.1
    parent_based: bool = True
    """Follow the parent's decision where there is a parent; the ratio is for requests that begin a trace."""

    def samples(self, trace_id: int, parent_sampled: bool | None) -> bool:
        """Whether to record; `parent_sampled` is None without a parent."""
        if self.parent_based and parent_sampled is not None:
            return parent_sampled
        return trace_id & (_BITS - 1) < round(self.ratio * _BITS)
