"""Which GPUs go to their driver's defaults when the file of originals is lost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from heliotrope_agent.driver.interface import Device
from heliotrope_agent.pods.claims import Holder, Standing

_OTHERS = frozenset({Standing.SHARED, Standing.MIG, Standing.FOREIGN_OWNER})


@dataclass(frozen=True, slots=True)
class Defaults:
    """How far that has come.

    A GPU that others have is left alone. If nobody tells in time whose they are, all but partitioned ones are reset: a
    GPU left slow by us is worse than one that loses somebody's lock.
    """

    until_s: float
    """When waiting for owners ends."""
    done: frozenset[str] = frozenset()
    """UUIDs of GPUs that have their defaults."""

    def due(self, devices: Sequence[Device], holders: Mapping[str, Holder] | None, now_s: float) -> tuple[Device, ...]:
        """GPUs to reset now.

        Args:
            devices: of the node.
            holders: who has them, judged by the wishes of the API server; None: not known.
            now_s: on the clock of `until_s`.
        """
        return tuple(
            each
            for each in devices
            if each.uuid not in self.done and not each.mig and _ours(each.uuid, holders, late=now_s >= self.until_s)
        )

    def after(self, done: Iterable[str]) -> "Defaults":
        """After these were reset."""
        return replace(self, done=self.done | frozenset(done))

    def finished(self, devices: Sequence[Device], holders: Mapping[str, Holder] | None, now_s: float) -> bool:
        """Whether nothing is left to be done or waited for."""
        known = holders is not None or now_s >= self.until_s
        return bool(devices) and known and not self.due(devices, holders, now_s)


def _ours(uuid: str, holders: Mapping[str, Holder] | None, *, late: bool) -> bool:
    if holders is None:
        return late
    holder = holders.get(uuid)
    return holder is None or holder.standing not in _OTHERS
