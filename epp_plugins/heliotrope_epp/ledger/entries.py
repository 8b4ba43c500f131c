"""From what happened to entries of the ledger: pure, and balanced to the millijoule.

It is double-entry bookkeeping. What counters attribute to requests is first given to the line `unrecorded`; a request's
row takes its part back out of it. So at every moment the rows add up to the counters, with whatever has no row of its
own in plain sight. The hosts' energy is kept the same way on the line `host`.
"""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple

from heliotrope.carbon.footprint import Boundary
from heliotrope.units import grams_co2e, joules_from_millijoules
from heliotrope_epp.ledger.places import Place
from heliotrope_epp.ledger.rows import Amounts, Key, Line, Signal
from heliotrope_epp.ledger.spread import slots, split
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest

Entry = tuple[Key, Amounts]
At = tuple[str | None, str | None, Place]
"""Region and variant of an engine, and what they cost."""


class RequestLabels(NamedTuple):
    """The names under which a request is counted, already bounded in number."""

    model: str
    """That answered."""
    asked_model: str
    tenant: str
    request_class: str


def request_entries(
    request: FinishedRequest,
    energy: RequestEnergy | None,
    places: Sequence[Place],
    labels: RequestLabels,
    slot_seconds: int,
    now_unix_s: float,
) -> list[Entry]:
    """A finished request's rows, with what they take from `unrecorded` and `host`.

    Counts and tokens stand in the slot in which it ended, energy in those over which it was drawn. `places` are those
    of its engines, the one that answered first: where several served it, what each drew stands at its own place.
    """

    def key(slot: int, at: At, signal: Signal | None, boundary: Boundary, *, measured: bool) -> Key:
        region, variant, place = at
        return Key(
            slot,
            Line.REQUEST,
            region,
            variant,
            place.site,
            signal,
            boundary,
            measured,
            model=labels.model or None,
            tenant=labels.tenant or None,
            policy=request.policy,
            arm=request.arm,
            request_class=labels.request_class or None,
            asked_model=labels.asked_model or None,
        )

    if energy is None:
        (slot, _), *_ = slots(request.ended_unix_s, request.ended_unix_s, slot_seconds)
        at = (request.region, request.variant, places[0])
        return [(key(slot, at, None, Boundary.ACCELERATORS, measured=False), _counts(request))]
    entries: list[Entry] = []
    over = slots(energy.start_unix_s, energy.end_unix_s, slot_seconds)
    shares = energy.by_engine(request.endpoint, request.region, request.variant)
    for engine, (drawn, place) in enumerate(zip(shares, places, strict=True)):
        price = _Price.at(place, now_unix_s)
        with_host = isfinite(drawn.host_joules)
        boundary = Boundary.ACCELERATORS_AND_HOST if with_host else Boundary.ACCELERATORS
        host_joules = drawn.host_joules if with_host else 0.0
        parts = split(drawn.millijoules, [share for _, share in over])
        for index, ((slot, share), millijoules) in enumerate(zip(over, parts, strict=True)):
            amounts = _counts(request) if engine == 0 and index == len(over) - 1 else Amounts()
            amounts.covered_requests = energy.coverage * amounts.requests
            amounts.millijoules = millijoules
            amounts.host_joules = host_joules * share
            amounts.idle_share_joules = drawn.idle_joules * share
            amounts.accelerator_seconds = drawn.accelerator_seconds * share
            at = (drawn.region, drawn.variant, place)
            entries.append((key(slot, at, price.signal, boundary, measured=True), price.of(amounts)))
            entries.append(_line(Line.UNRECORDED, slot, drawn.region, drawn.variant, place, price, -millijoules))
            if with_host:
                entries.append(_host(slot, drawn.region, drawn.variant, place, price, -host_joules * share))
    return entries


def interval_entries(interval: MeteredInterval, place: Place, slot_seconds: int, now_unix_s: float) -> list[Entry]:
    """An interval's lines; together they are its total."""
    over = slots(interval.start_unix_s, interval.end_unix_s, slot_seconds)
    shares = [share for _, share in over]
    price = _Price.at(place, now_unix_s)
    entries = [
        _line(line, slot, interval.region, interval.variant, place, price, part)
        for line, millijoules in _parts(interval)
        for (slot, _), part in zip(over, split(millijoules, shares), strict=True)
    ]
    if isfinite(interval.host_joules):
        entries += [
            _host(slot, interval.region, interval.variant, place, price, interval.host_joules * share)
            for slot, share in over
        ]
    return entries


class _Price(NamedTuple):
    """What a joule costs at a place now."""

    signal: Signal | None
    """None: nobody knows."""
    grams_per_joule: float
    age_seconds: float

    @classmethod
    def at(cls, place: Place, now_unix_s: float) -> "_Price":
        signal, reading, pue = place.signal, place.reading, place.site.pue
        if signal is None or reading is None or pue is None:
            return cls(None, 0.0, 0.0)
        grams = grams_co2e(1.0, pue, reading.intensity_g_per_kwh)
        return cls(signal, grams, max(now_unix_s - reading.measured_unix_s, 0.0))

    def of(self, amounts: Amounts) -> Amounts:
        """The amounts, priced."""
        joules = joules_from_millijoules(float(amounts.millijoules)) + amounts.host_joules
        amounts.grams_co2e = joules * self.grams_per_joule
        amounts.signal_age_seconds = self.age_seconds
        return amounts


def _line(
    line: Line, slot: int, region: str | None, variant: str | None, place: Place, price: _Price, millijoules: int
) -> Entry:
    return Key(slot, line, region, variant, place.site, price.signal), price.of(Amounts(millijoules=millijoules))


def _host(slot: int, region: str | None, variant: str | None, place: Place, price: _Price, host_joules: float) -> Entry:
    key = Key(slot, Line.HOST, region, variant, place.site, price.signal, Boundary.HOST)
    return key, price.of(Amounts(host_joules=host_joules))


def _parts(interval: MeteredInterval) -> Iterator[tuple[Line, int]]:
    for line, millijoules in (
        (Line.UNRECORDED, interval.requests_millijoules),
        (Line.OTHERS, interval.others_millijoules),
        (Line.IDLE, interval.idle_millijoules),
        (Line.UNATTRIBUTED, interval.unattributed_millijoules),
    ):
        if millijoules:
            yield line, millijoules


def _counts(request: FinishedRequest) -> Amounts:
    ttft, tpot, broke = request.ttft_seconds, request.tpot_seconds, request.broke_slo
    return Amounts(
        requests=1,
        succeeded=int(request.succeeded),
        without_usage=int(request.output_tokens is None),
        prompt_tokens=request.prompt_tokens or 0,
        cached_tokens=request.cached_tokens or 0,
        output_tokens=request.output_tokens or 0,
        ttft_seconds=ttft or 0.0,
        ttft_requests=int(ttft is not None),
        tpot_seconds=tpot or 0.0,
        tpot_requests=int(tpot is not None),
        slo_requests=int(broke is not None),
        slo_violations=int(broke is True),
    )
