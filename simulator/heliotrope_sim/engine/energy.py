"""The energy meter of one engine: exact at any time, in whole picojoules."""

from heliotrope.engine.model import EngineModel
from heliotrope_sim.engine.fixed_point import PICOJOULES_PER_MILLIJOULE, milliwatts


class EnergyMeter:
    """What all accelerators of an engine drew, in three parts that add up to the total: busy, idle, asleep.

    Between steps the standing power runs; within a step its energy is spread evenly over its duration. The host's
    share is metered apart, because no GPU counter shows it.
    """

    __slots__ = (
        "_asleep",
        "_host_milliwatts",
        "_idle_milliwatts",
        "_settled_ns",
        "_sleep_milliwatts",
        "_start_ns",
        "_step_picojoules",
        "_step_start_ns",
        "asleep_picojoules",
        "busy_picojoules",
        "idle_picojoules",
    )

    def __init__(self, model: EngineModel, now_ns: int) -> None:
        self._idle_milliwatts = milliwatts(model.idle_watts)
        self._sleep_milliwatts = milliwatts(model.sleep_watts)
        self._host_milliwatts = milliwatts(model.host_watts)
        self._start_ns = now_ns
        self._settled_ns = now_ns
        self._step_start_ns = now_ns
        self._step_picojoules = 0
        self._asleep = False
        self.busy_picojoules = 0
        self.idle_picojoules = 0
        self.asleep_picojoules = 0

    @property
    def settled_ns(self) -> int:
        """Up to when energy is settled: the end of the step in progress, or of the last one."""
        return self._settled_ns

    def step(self, now_ns: int, duration_ns: int, picojoules: int) -> None:
        """Charge a step that starts now; the time since the last one was idle."""
        self.settle(now_ns)
        self._step_start_ns = now_ns
        self._step_picojoules = picojoules
        self.busy_picojoules += picojoules
        self._settled_ns = now_ns + duration_ns

    def settle(self, now_ns: int) -> None:
        """Charge the standing power up to now."""
        elapsed = now_ns - self._settled_ns
        if elapsed <= 0:
            return
        if self._asleep:
            self.asleep_picojoules += self._sleep_milliwatts * elapsed
        else:
            self.idle_picojoules += self._idle_milliwatts * elapsed
        self._step_start_ns = self._settled_ns = now_ns
        self._step_picojoules = 0

    def set_clock(self, now_ns: int, model: EngineModel) -> None:
        """Take the standing power of the model at another clock, from now or from the end of the step in progress."""
        self.settle(now_ns)
        self._idle_milliwatts = milliwatts(model.idle_watts)
        self._sleep_milliwatts = milliwatts(model.sleep_watts)

    def set_asleep(self, now_ns: int, asleep: bool) -> None:
        """Change the standing power, from now or from the end of the step in progress."""
        self.settle(now_ns)
        self._asleep = asleep

    def picojoules(self, now_ns: int) -> int:
        """Cumulative energy at a time not before the start of the last step; grows with it."""
        total = self.busy_picojoules + self.idle_picojoules + self.asleep_picojoules
        ahead = self._settled_ns - now_ns
        if ahead <= 0:
            return total - self._standing_milliwatts * ahead
        duration = self._settled_ns - self._step_start_ns
        if not duration:
            return total
        return total - self._step_picojoules * min(ahead, duration) // duration

    def millijoules(self, now_ns: int) -> int:
        """Cumulative energy in whole mJ, as NVML and DCGM count it."""
        return self.picojoules(now_ns) // PICOJOULES_PER_MILLIJOULE

    def watts(self, now_ns: int) -> float:
        """Power at a time: that of the step in progress, else the standing power."""
        duration = self._settled_ns - self._step_start_ns
        if now_ns < self._settled_ns and duration:
            return self._step_picojoules / duration / 1_000
        return self._standing_milliwatts / 1_000

    def split(self, now_ns: int) -> tuple[int, int, int]:
        """The cumulative energy (pJ) as (busy, idle, asleep); adds up to `picojoules`."""
        settled = self.busy_picojoules + self.idle_picojoules + self.asleep_picojoules
        unsettled = self.picojoules(now_ns) - settled
        if unsettled < 0:
            return self.busy_picojoules + unsettled, self.idle_picojoules, self.asleep_picojoules
        if self._asleep:
            return self.busy_picojoules, self.idle_picojoules, self.asleep_picojoules + unsettled
        return self.busy_picojoules, self.idle_picojoules + unsettled, self.asleep_picojoules

    def host_picojoules(self, now_ns: int) -> int:
        """What the engine's share of its host drew since the start."""
        return self._host_milliwatts * max(0, now_ns - self._start_ns)

    @property
    def _standing_milliwatts(self) -> int:
        return self._sleep_milliwatts if self._asleep else self._idle_milliwatts
