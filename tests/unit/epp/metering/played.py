"""A meter with endpoints whose pages, counters and requests a test plays by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heliotrope.engine.counters import CounterLimits
from heliotrope.engine.model import EngineModel
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.endpoint import ROLE_LABEL, Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.node_energy import NodeReading
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.metering.meter import EnergyMeter
from heliotrope_epp.metering.settings import MeteringSettings
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import UNSTEERED, FinishedRequest
from heliotrope_epp.outcomes.meter import EncodedAt, Routed
from heliotrope_epp.outcomes.sinks import Sinks
from heliotrope_epp.transport.interface import Cause, Progress

UNIX_OFFSET_S = 1_000_000.0


@dataclass(slots=True, eq=False)
class Sent:
    """A request that a test has sent."""

    name: str
    endpoint: str
    prefill_endpoint: str | None
    dispatched_s: float
    prompt_tokens: int
    streaming: bool
    chunks: int = 0
    first_s: float | None = None
    last_s: float | None = None


@dataclass(slots=True)
class Counted:
    """What an endpoint's page shows."""

    accelerators: dict[str, int | None] = field(default_factory=dict)
    prompt_tokens: float | None = 0.0
    first_tokens: float | None = 0.0
    generated: float | None = 0.0
    running: float = 0.0
    iterations: float | None = None
    power_watts: float | None = None
    asleep: bool | None = None


class Played:
    """Endpoints by key, time that stands still until it is moved, and all that sinks were told."""

    def __init__(
        self,
        *names: str,
        engine: EngineModel | None = None,
        limits: CounterLimits | None = None,
        hold_s: float = 0.0,
        node: str | None = None,
        max_waiting: int = 100,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        self.now_s = 0.0
        self.limits = limits or CounterLimits(max_watts=5_000.0)
        clock = Clock(monotonic=lambda: self.now_s, unix=lambda: self.now_s + UNIX_OFFSET_S)
        sinks = Sinks([self])
        self.nodes: dict[str, NodeReading] = {}
        self.flying: list[Sent] = []
        self.meter = EnergyMeter(
            sinks,
            MeteringSettings(hold_s=hold_s, limits=self.limits, max_waiting=max_waiting),
            progress=lambda: [_progress(sent) for sent in self.flying],
            node_readings=lambda: self.nodes,
            clock=clock,
        )
        self.states: dict[str, EndpointState] = {}
        self.counted: dict[str, Counted] = {}
        for index, name in enumerate(names):
            labels = {ROLE_LABEL: roles[name]} if roles is not None and name in roles else {}
            endpoint = Endpoint(name, "ns", f"10.0.0.{index + 1}", 8000, labels, node_address=node, pod=name)
            state = EndpointState(endpoint, Traits(region="R", variant="ns/v", engine=engine))
            self.states[endpoint.key] = state
            self.counted[endpoint.key] = Counted()
            self.meter.added(state)
        self.energies: dict[str, RequestEnergy | None] = {}
        self.intervals: list[MeteredInterval] = []

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        assert request.request_id not in self.energies
        self.energies[request.request_id] = energy

    def metered(self, interval: MeteredInterval) -> None:
        assert interval.total_millijoules == (
            interval.requests_millijoules
            + interval.others_millijoules
            + interval.idle_millijoules
            + interval.unattributed_millijoules
        )
        self.intervals.append(interval)

    def page(self, key: str) -> None:
        """The endpoint's page arrives."""
        counted = self.counted[key]
        state = self.states[key]
        state.metrics = EngineMetrics(
            scraped_s=self.now_s,
            running=counted.running,
            waiting=0.0,
            prompt_tokens_total=counted.prompt_tokens,
            computed_prompt_tokens_total=counted.prompt_tokens,
            first_tokens_total=counted.first_tokens,
            generation_tokens_total=counted.generated,
            iterations_total=counted.iterations,
            accelerators=tuple(counted.accelerators.items()),
            power_watts=counted.power_watts,
            asleep=counted.asleep,
        )
        state.inflight_at_scrape = sum(sent.endpoint == key for sent in self.flying)

    def tick(self, seconds: float = 0.0) -> None:
        """Time moves on, every page arrives and the meter looks."""
        self.now_s += seconds
        for key in self.states:
            self.page(key)
        self.meter.tick(self.now_s)

    def send(
        self,
        name: str,
        endpoint: str,
        *,
        prompt_tokens: int = 100,
        prefill_endpoint: str | None = None,
        streaming: bool = True,
        due_s: float = 0.0,
        model: str = "m",
        encodes: tuple[EncodedAt, ...] = (),
    ) -> Sent:
        """A request is routed."""
        sent = Sent(name, endpoint, prefill_endpoint, self.now_s, prompt_tokens, streaming)
        self.flying.append(sent)
        self.meter.routed(
            sent,
            Routed(
                endpoint=endpoint,
                model=model,
                streaming=streaming,
                prompt_tokens=float(prompt_tokens),
                cached_tokens=0.0,
                dispatched_s=self.now_s,
                first_token_due_s=self.now_s + due_s,
                prefill_endpoint=prefill_endpoint,
                encodes=encodes,
            ),
        )
        return sent

    def encode(self, encodes: Sequence[EncodedAt], wrapper_tokens: int = 0) -> None:
        """Encoders are done with their images; each came in a prompt with so many tokens beside it."""
        for at in encodes:
            for tokens in (*at.image_tokens, *at.remembered_tokens):
                whole = int(tokens) + wrapper_tokens
                _count(self.counted[at.endpoint], prompt_tokens=whole, first_tokens=1, generated=1)

    def chunks(self, sent: Sent, count: int, *, counted: bool = True) -> None:
        """Pieces of its answer arrive, and its engines count them."""
        if count <= 0:
            return
        if sent.first_s is None:
            sent.first_s = self.now_s
            if counted:
                prefill = self.counted[sent.prefill_endpoint or sent.endpoint]
                _count(prefill, prompt_tokens=sent.prompt_tokens, first_tokens=1)
                if sent.prefill_endpoint is not None:
                    _count(prefill, generated=1)
                    _count(self.counted[sent.endpoint], first_tokens=1)
        sent.chunks += count
        sent.last_s = self.now_s
        if counted:
            _count(self.counted[sent.endpoint], generated=count)

    def end(
        self,
        sent: Sent,
        *,
        tokens: int | None = None,
        prompt_tokens: int | None = None,
        status: int | None = 200,
        cause: Cause = Cause.COMPLETE,
    ) -> None:
        """It ends; `tokens` and `prompt_tokens` are its usage."""
        self.flying.remove(sent)
        self.meter.ended(sent, finished(sent, self.now_s, tokens, prompt_tokens, status, cause))


def _count(counted: Counted, **risen: int) -> None:
    for name, count in risen.items():
        before = getattr(counted, name)
        if before is not None:
            setattr(counted, name, before + count)


def _progress(sent: Sent) -> Progress:
    return Progress(
        ctx=sent,
        received_s=sent.dispatched_s,
        routed_s=sent.dispatched_s,
        chunks=sent.chunks,
        body_bytes=0,
        first_s=sent.first_s,
        last_s=sent.last_s,
    )


def finished(
    sent: Sent, now_s: float, tokens: int | None, prompt_tokens: int | None, status: int | None, cause: Cause
) -> FinishedRequest:
    """The record of a request that ends now."""
    return FinishedRequest(
        request_id=sent.name,
        model="m",
        tenant="",
        request_class="",
        arm=UNSTEERED,
        policy=None,
        endpoint=sent.endpoint,
        variant=None,
        region=None,
        streaming=sent.streaming,
        dispatched_s=sent.dispatched_s,
        first_s=sent.first_s,
        last_s=sent.last_s,
        ended_s=now_s,
        dispatched_unix_s=sent.dispatched_s + UNIX_OFFSET_S,
        ended_unix_s=now_s + UNIX_OFFSET_S,
        status=status,
        cause=cause,
        believed_prompt_tokens=sent.prompt_tokens,
        believed_cached_tokens=0.0,
        expected_output_tokens=10.0,
        prompt_tokens=prompt_tokens,
        cached_tokens=None if prompt_tokens is None else 0,
        output_tokens=tokens,
        expected=None,
    )


def raised(values: Mapping[str, int | None], by: int) -> dict[str, int | None]:
    """Counters that have all risen by so many mJ."""
    return {key: None if value is None else value + by for key, value in values.items()}
