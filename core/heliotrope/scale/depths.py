"""How deep an idle engine may rest: what each depth draws, what going there and back costs, and when that pays.

Between two uses an engine stands idle for a time T. Staying awake costs P_awake·T. Resting costs what entering and
waking take, E_t over t_t seconds, and P_rest for what is left of T, so it pays from the break-even time

    T* = max(t_t, (E_t - P_rest·t_t) / (P_awake - P_rest))

on (the rule of dynamic power management; carbon-slo-tension §VI asks for the load-aware activator). Watts and joules
are of all accelerators of the engine; the host's share is saved only where its whole node goes off.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from heliotrope.api.v1alpha1.controls import ActivationDepth
from heliotrope.engine.model import EngineModel

ORDER = (
    ActivationDepth.IDLE_CLOCK,
    ActivationDepth.ENGINE_SLEEP,
    ActivationDepth.PROCESS_EXIT,
    ActivationDepth.NODE_OFF,
)
"""From quick to wake to deep."""


@dataclass(frozen=True, slots=True)
class Rest:
    """One depth of one kind of engine, as measured."""

    watts: float
    """Drawn there, by accelerators and, where the depth keeps the node on, not counting the host."""
    wake_seconds: float
    """From the wish until it serves."""
    wake_joules: float = 0.0
    """Drawn meanwhile."""
    enter_seconds: float = 0.0
    enter_joules: float = 0.0
    loses_cache: bool = True


@dataclass(frozen=True, slots=True)
class RestTable:
    """What is known of one kind of engine; a depth that is not in `depths` was not measured and is never chosen."""

    awake_watts: float
    """With the model loaded and nothing in flight."""
    host_watts: float
    """The engine's share of its node."""
    depths: Mapping[ActivationDepth, Rest] = field(default_factory=dict)

    def break_even_seconds(self, depth: ActivationDepth) -> float:
        """Shortest idle time for which the depth pays; inf where it never does, or is unknown."""
        rest = self.depths.get(depth)
        if rest is None:
            return inf
        gain = self._awake(depth) - rest.watts
        if gain <= 0.0:
            return inf
        transition = rest.wake_seconds + rest.enter_seconds
        cost = rest.wake_joules + rest.enter_joules - rest.watts * transition
        return max(transition, cost / gain)

    def saved_joules(self, depth: ActivationDepth | None, idle_seconds: float) -> float:
        """What resting saves over an idle time against staying awake; negative where it costs more."""
        rest = None if depth is None else self.depths.get(depth)
        if depth is None or rest is None:
            return 0.0
        resting = max(idle_seconds - rest.wake_seconds - rest.enter_seconds, 0.0)
        drawn = rest.wake_joules + rest.enter_joules + rest.watts * resting
        return self._awake(depth) * idle_seconds - drawn

    def saved_watts(self, depth: ActivationDepth | None) -> float:
        """While it rests there."""
        rest = None if depth is None else self.depths.get(depth)
        return 0.0 if depth is None or rest is None else self._awake(depth) - rest.watts

    def wake_seconds(self, depth: ActivationDepth | None) -> float:
        """From the wish until it serves; 0 for one that is awake, inf where it is unknown."""
        if depth is None:
            return 0.0
        rest = self.depths.get(depth)
        return inf if rest is None else rest.wake_seconds

    def _awake(self, depth: ActivationDepth) -> float:
        return self.awake_watts + (self.host_watts if depth is ActivationDepth.NODE_OFF else 0.0)


@dataclass(frozen=True, slots=True)
class WakeTimes:
    """Seconds from the wish until an engine serves, by depth; None: the depth is not available."""

    idle_clock: float | None = 3.0
    """A clock that is set by an agent, which looks every second or two."""
    engine_sleep: float | None = 15.0
    """Weights back from host memory."""
    process_exit: float | None = 120.0
    """A process that loads its weights."""
    node_off: float | None = 420.0
    """A machine that boots or is bought before."""


def rest_table(model: EngineModel, wakes: WakeTimes) -> RestTable:
    """What an engine's profile says of its depths.

    While it wakes an engine is taken to draw what it draws idle, and a node that boots its host's watts on top. A depth
    whose watts the profile does not know is left out: unknown is not zero.
    """
    idle, depths = model.idle_watts, {}
    drawn: dict[ActivationDepth, tuple[float | None, float | None]] = {
        ActivationDepth.IDLE_CLOCK: (model.at_clock(model.clock.min_mhz).idle_watts, wakes.idle_clock),
        ActivationDepth.ENGINE_SLEEP: (model.sleep_watts, wakes.engine_sleep),
        ActivationDepth.PROCESS_EXIT: (model.unloaded_watts, wakes.process_exit),
        ActivationDepth.NODE_OFF: (0.0, wakes.node_off),
    }
    for depth, (watts, seconds) in drawn.items():
        if watts is not None and seconds is not None:
            awake = idle + (model.host_watts if depth is ActivationDepth.NODE_OFF else 0.0)
            depths[depth] = Rest(
                watts=watts,
                wake_seconds=seconds,
                wake_joules=awake * seconds,
                loses_cache=depth is not ActivationDepth.IDLE_CLOCK,
            )
    return RestTable(idle, model.host_watts, depths)
