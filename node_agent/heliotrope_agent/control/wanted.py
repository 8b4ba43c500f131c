"""What an intent asks of the GPUs of a group, and what of it their devices can do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliotrope.api.v1alpha1.nodepower import GpuSettings, PowerIntent
from heliotrope.units import milliwatts_from_watts
from heliotrope_agent.control.reasons import Reason
from heliotrope_agent.driver.interface import Device
from heliotrope_agent.pods.claims import PodName
from heliotrope_agent.state.records import Levels


@dataclass(frozen=True, slots=True)
class Named:
    """A pod that an intent names."""

    intent: PowerIntent
    uid: str


def named_pods(intents: Sequence[PowerIntent]) -> Mapping[PodName, tuple[Named, ...]]:
    """The intents that name each pod; more than one is a mistake that the caller reports."""
    found: dict[PodName, tuple[Named, ...]] = {}
    for intent in intents:
        for pod in intent.pods:
            name = PodName(intent.namespace, pod.name)
            found[name] = (*found.get(name, ()), Named(intent, pod.uid))
    return found


def requested(intent: PowerIntent, pod: str) -> GpuSettings:
    """The settings that an intent asks for on the GPUs of one of its pods."""
    sm_clock_mhz = intent.sm_clock_mhz
    if pod in intent.resting_pods and intent.resting_sm_clock_mhz is not None:
        sm_clock_mhz = intent.resting_sm_clock_mhz
    return GpuSettings(sm_clock_mhz=sm_clock_mhz, memory_clock_mhz=intent.memory_clock_mhz, watts=intent.watts)


def feasible(asked: GpuSettings, devices: Sequence[Device]) -> tuple[Levels, frozenset[Reason]]:
    """The levels nearest to what is asked that all these devices can have, and what became of the rest.

    A clock becomes the highest supported one that does not exceed it, or the lowest there is; watts go to the nearest
    bound. What some device cannot do at all is left out for all.

    Args:
        asked: the intent's settings.
        devices: at least one.
    """
    reasons = set[Reason]()
    sm = _clock(asked.sm_clock_mhz, [each.sm_clocks_mhz for each in devices], reasons)
    memory = _clock(asked.memory_clock_mhz, [each.memory_clocks_mhz for each in devices], reasons)
    power = _power(asked.watts, devices, reasons)
    return Levels(sm, memory, power), frozenset(reasons)


def _clock(asked: int | None, supported: Sequence[Sequence[int]], reasons: set[Reason]) -> int | None:
    if asked is None:
        return None
    common = set(supported[0]).intersection(*supported[1:])
    if not common:
        reasons.add(Reason.UNSUPPORTED)
        return None
    level = max((each for each in common if each <= asked), default=min(common))
    if level != asked:
        reasons.add(Reason.CLAMPED)
    return level


def _power(watts: int | None, devices: Sequence[Device], reasons: set[Reason]) -> int | None:
    if watts is None:
        return None
    bounds = [(each.milliwatts_min, each.milliwatts_max) for each in devices]
    low = max((low for low, _ in bounds if low is not None), default=0)
    high = min((high for _, high in bounds if high is not None), default=0)
    if any(None in each for each in bounds) or low > high:
        reasons.add(Reason.UNSUPPORTED)
        return None
    asked = round(milliwatts_from_watts(watts))
    level = min(max(asked, low), high)
    if level != asked:
        reasons.add(Reason.CLAMPED)
    return level
