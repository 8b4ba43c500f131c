"""The live endpoints with the policy and regions that decisions about them use."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.signal import ABSENT, CarbonSignal
from heliotrope.decide.candidates import RegionView
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.units import seconds_from_milliseconds
from heliotrope_epp.datalayer.endpoint import RESTING_LABEL, Endpoint, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.datalayer.world import World

NAN = float("nan")


class Listener(Protocol):
    """Whoever keeps something per endpoint. Called on the loop's thread."""

    def added(self, state: EndpointState) -> None:
        """A new endpoint may be chosen from now on."""
        ...

    def removed(self, key: str) -> None:
        """The endpoint is gone; one of the same name that comes back is another one."""
        ...

    def cache_lost(self, key: str) -> None:
        """The endpoint's engine restarted or fell asleep: nothing is in its KV cache any more."""
        ...


class EndpointStore:
    """Owned by the loop's thread. What it hands out is replaced on change, never changed in place.

    `home_region` is where this picker runs; network times are counted from there, and not at all without it.
    """

    def __init__(self, *, home_region: str | None = None) -> None:
        self._home_region = home_region
        self._states: dict[str, EndpointState] = {}
        self._all: tuple[EndpointState, ...] = ()
        self._world = World()
        self._signals: Mapping[str, CarbonSignal] = {}
        self._regions: Mapping[str, RegionView] = {}
        self._listeners: list[Listener] = []
        self.resting = False
        """Whether an endpoint is marked as one that rests, or is about to."""
        self.generation = 0
        """Counts the worlds that were applied; 0 until the first."""

    @property
    def world(self) -> World:
        """What was applied last."""
        return self._world

    def listen(self, listener: Listener) -> None:
        """Tell a listener of endpoints from now on, beginning with those that are there."""
        self._listeners.append(listener)
        for state in self._all:
            listener.added(state)

    def apply(self, world: World) -> None:
        """Make a world the current one. Endpoints that stay keep their metrics and their requests in flight.

        One that keeps its name but moves to another address is a new engine.
        """
        wanted = {endpoint.key: endpoint for endpoint in world.endpoints}
        for key, state in list(self._states.items()):
            if key not in wanted or not _same_engine(state.endpoint, wanted[key]):
                del self._states[key]
                for listener in self._listeners:
                    listener.removed(key)
        new = []
        for key, endpoint in wanted.items():
            traits = world.traits.get(key, Traits())
            present = self._states.get(key)
            if present is None:
                self._states[key] = state = EndpointState(endpoint, traits)
                new.append(state)
            else:
                present.endpoint, present.traits = endpoint, traits
        self._all = tuple(self._states[key] for key in wanted)
        self._world = world
        self._regions = self._views()
        self.resting = any(RESTING_LABEL in endpoint.labels for endpoint in world.endpoints)
        self.generation += 1
        for state in new:
            for listener in self._listeners:
                listener.added(state)

    def set_signals(self, signals: Mapping[str, CarbonSignal]) -> None:
        """Replace the carbon signals; a region without one is absent."""
        self._signals = signals
        self._regions = self._views()

    def cache_lost(self, key: str) -> None:
        """Tell the listeners that an endpoint's KV cache is empty."""
        for listener in self._listeners:
            listener.cache_lost(key)

    def states(self) -> Sequence[EndpointState]:
        """Every endpoint, in the source's order."""
        return self._all

    def get(self, key: str) -> EndpointState | None:
        """The endpoint of this `namespace/name`."""
        return self._states.get(key)

    def candidates(self, subset: Sequence[str] | None = None) -> Sequence[EndpointState]:
        """The endpoints that may serve a request.

        Args:
            subset: what the gateway allows, each entry `ip` (all its ports) or `ip:port`; None allows every endpoint.
                IPv6 stands in brackets where a port follows, and may stand in brackets where none does.
        """
        if subset is None:
            return self._all
        allowed = {part.strip() for entry in subset for part in entry.split(",")}
        allowed |= {entry.removeprefix("[").removesuffix("]") for entry in allowed}
        return tuple(
            state for state in self._all if state.endpoint.host_port in allowed or state.endpoint.address in allowed
        )

    def policy(self) -> DecisionPolicy | None:
        """The policy in force, None without one."""
        return self._world.policy

    def priority(self, inference_objective: str) -> int | None:
        """Of an InferenceObjective by name; None: it is not known here."""
        return self._world.priorities.get(inference_objective)

    def regions(self) -> Mapping[str, RegionView]:
        """What decisions know of each region, by name."""
        return self._regions

    def _views(self) -> Mapping[str, RegionView]:
        return {
            name: RegionView(
                name=name,
                signal=self._signals.get(name, ABSENT),
                pue=region.spec.pue,
                wue_l_per_kwh=NAN if region.spec.wue_liters_per_kwh is None else region.spec.wue_liters_per_kwh,
                rtt_seconds=self._rtt_seconds(name),
            )
            for name, region in self._world.regions.items()
        }

    def _rtt_seconds(self, name: str) -> float:
        """NaN where the profiles do not say."""
        home = self._home_region
        if home is None or home == name:
            return 0.0
        regions = self._world.regions
        stated = _stated_rtt(regions.get(home), name)
        if stated is None:
            stated = _stated_rtt(regions.get(name), home)
        return NAN if stated is None else stated


def _same_engine(before: Endpoint, now: Endpoint) -> bool:
    return before.address == now.address and before.port == now.port


def _stated_rtt(region: RegionProfile | None, other: str) -> float | None:
    if region is None:
        return None
    for each in region.spec.round_trip_times:
        if each.region == other:
            return seconds_from_milliseconds(float(each.milliseconds))
    return None
