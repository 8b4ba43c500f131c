"""The sources of demand events of all policies: asked at their intervals, last answers kept.

A source that gives no answer changes nothing for a while: what it said last holds, as an outage must neither end an
event nor begin one. After `HOLD_S` an event without an end of its own is over; one with an end holds until then.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isinf

from heliotrope.api.v1alpha1.controls import DemandResponse, HttpDemand, PrometheusDemand
from heliotrope.errors import InvalidInputError, SignalUnavailableError
from heliotrope.power.demand import Answer, Event
from heliotrope.power.events import MAX_BYTES, PROMETHEUS_EVENT, planned_events, read_events, sampled_event
from heliotrope.providers.http import Limits, Network, Request, secret_values
from heliotrope.providers.prometheus_api import PrometheusApi
from heliotrope.providers.secrets import bearer
from heliotrope_operator.kube import Kube
from heliotrope_operator.power.tokens import demand_token
from heliotrope_operator.resources import Key

HOLD_S = 900.0
PROMETHEUS_POLL_S = 30.0
RETRY_S = 10.0
SOURCE = "demand response"


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known of a policy's events."""

    events: tuple[Event, ...]
    pending: bool = False
    """Whether the source has not answered since this process started; what the status says holds."""
    failure: str | None = None
    """Why the last question was not answered; None if it was."""
    problems: tuple[str, ...] = ()
    """Entries of the last answer that could not be read."""


@dataclass(slots=True)
class _Source:
    made_of: HttpDemand | PrometheusDemand
    events: tuple[Event, ...] = ()
    answered_unix_s: float | None = None
    failure: str | None = None
    problems: tuple[str, ...] = ()


class DemandSources:
    """Asks the sources and remembers."""

    def __init__(self, kube: Kube, *, namespace: str, unix_clock: Callable[[], float]) -> None:
        """`namespace` is the operator's own, where Secrets are."""
        self._kube = kube
        self._namespace = namespace
        self._unix_clock = unix_clock
        self._network = Network(Limits(body_bytes=MAX_BYTES))
        self._sources: dict[Key, _Source] = {}

    def followed(self, policy: Key, response: DemandResponse) -> bool:
        """Whether nothing needs to be asked, or this source has been taken up."""
        wanted = response.http or response.prometheus
        source = self._sources.get(policy)
        return wanted is None or (source is not None and source.made_of == wanted)

    def forget(self, policy: Key) -> None:
        """The policy is gone, or has no source any more."""
        self._sources.pop(policy, None)

    def keep(self, policies: frozenset[Key]) -> None:
        """Forget all but these."""
        for key in self._sources.keys() - policies:
            del self._sources[key]

    async def ask(self, policy: Key, response: DemandResponse, answered: Answer | None) -> float | None:
        """Ask once; returns the seconds after which to ask again, None if there is nobody to ask.

        Args:
            policy: its key.
            response: what it says.
            answered: the event that is being answered, whose beginning a sample goes on from.
        """
        wanted = response.http or response.prometheus
        if wanted is None:
            self.forget(policy)
            return None
        source = self._sources.get(policy)
        if source is None or source.made_of != wanted:
            source = self._sources[policy] = _Source(wanted)
        now = self._unix_clock()
        try:
            if isinstance(wanted, HttpDemand):
                found = read_events(await self._list(wanted), now)
                events, problems = found.events, found.problems
            else:
                events, problems = await self._sample(wanted, now, answered), ()
        except (SignalUnavailableError, InvalidInputError) as error:
            source.failure = str(error)
            return RETRY_S
        source.events, source.problems = events, problems
        source.answered_unix_s, source.failure = now, None
        return wanted.poll_interval.total_seconds() if isinstance(wanted, HttpDemand) else PROMETHEUS_POLL_S

    def heard(self, policy: Key, response: DemandResponse, answered: Answer | None) -> Heard:
        """What is known now; of a source that has not answered yet, that what was being answered goes on."""
        if response.events is not None:
            return Heard(planned_events(response))
        source, now = self._sources.get(policy), self._unix_clock()
        if source is None or not self.followed(policy, response) or source.answered_unix_s is None:
            going = () if answered is None or answered.end_unix_s <= now else (_event(answered),)
            failure = None if source is None else source.failure
            return Heard(going, pending=True, failure=failure)
        events = source.events
        if source.failure is not None:
            until = source.answered_unix_s + HOLD_S
            events = tuple(replace(each, end_unix_s=until) if isinf(each.end_unix_s) else each for each in events)
        return Heard(events, failure=source.failure, problems=source.problems)

    async def _list(self, wanted: HttpDemand) -> bytes:
        headers: dict[str, str] = {}
        if wanted.token_secret_ref is not None:
            token = await demand_token(self._kube, self._namespace, wanted.token_secret_ref, wanted.url)
            headers["Authorization"] = bearer(token)
        request = Request(SOURCE, wanted.url, headers=headers, secrets=secret_values(headers.values()))
        return (await self._network.ask(request)).body

    async def _sample(self, wanted: PrometheusDemand, now_unix_s: float, answered: Answer | None) -> tuple[Event, ...]:
        vector = await PrometheusApi(self._network, wanted.url, source=SOURCE).query(wanted.query)
        if len(vector.samples) > 1:
            raise InvalidInputError(
                "prometheus.query", f"gives {len(vector.samples)} samples; aggregate it to one, the watts of the pool"
            )
        going = answered is not None and answered.event == PROMETHEUS_EVENT and answered.end_unix_s > now_unix_s
        since = answered.start_unix_s if going and answered is not None else now_unix_s
        return sampled_event(vector.samples[0].value if vector.samples else None, since)


def _event(answered: Answer) -> Event:
    return Event(answered.event, answered.start_unix_s, answered.end_unix_s, answered.target_watts)
