"""From what happened to entries of the ledger: pure, and balanced to the millijoule.

It is double-entry bookkeeping. What counters attribute to requests is first given to the line `unrecorded`; a request's
row takes its part back out of it. So at every moment the rows add up to the counters, with whatever has no row of its
own in plain sight. The hosts' energy is kept the same way on the line `host`.
"""

from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

from heliotrope.carbon.footprint import Boundary
from heliotrope.units import grams_co2e, joules_from_millijoules
from heliotrope_epp.ledger.places import Place
from heliotrope_epp.ledger.rows import Amounts, Key, Line
from heliotrope_epp.ledger.spread import slots, split
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest

Entry = tuple[Key, Amounts]


class RequestLabels(NamedTuple):
    """The names under which a request is counted, already bounded in number."""

    model: str
    tenant: str
    request_class: str


def request_entries(
    request: FinishedRequest,
    energy: RequestEnergy | None,
    place: Place,
    labels: RequestLabels,
    slot_seconds: int,
    now_unix_s: float,
) -> list[Entry]:
    """A finished request's rows, with what they take from `unrecorded` and `host`.

    Counts and tokens stand in the slot in which it ended, energy in those over which it was drawn.
    """
    key = Key(
        slot_unix_s=0,
        line=Line.REQUEST,
        region=request.region,
        variant=request.variant,
        site=place.site,
        model=labels.model or None,
        tenant=labels.tenant or None,
        policy=request.policy,
        arm=request.arm,
        request_class=labels.request_class or None,
    )
    if energy is None:
        (slot, _), *_ = slots(request.ended_unix_s, request.ended_unix_s, slot_seconds)
        return [(key._replace(slot_unix_s=slot, measured=False), _counts(request))]
    entries: list[Entry] = []
    with_host = isfinite(energy.host_joules)
    if with_host:
        key = key._replace(boundary=Boundary.ACCELERATORS_AND_HOST)
    over = slots(energy.start_unix_s, energy.end_unix_s, slot_seconds)
    host_joules = energy.host_joules if with_host else 0.0
    given_back = Key(0, Line.UNRECORDED, request.region, request.variant, place.site)
    given_back_host = given_back._replace(line=Line.HOST, boundary=Boundary.HOST)
    for index, ((slot, share), millijoules) in enumerate(
        zip(over, split(energy.millijoules, [share for _, share in over]), strict=True)
    ):
        amounts = Amounts(
            millijoules=millijoules,
            host_joules=host_joules * share,
            idle_share_joules=energy.idle_joules * share,
            accelerator_seconds=energy.accelerator_seconds * share,
        )
        if index == len(over) - 1:
            counts = _counts(request)
            counts.covered_requests = energy.coverage
            amounts.add(counts)
        entries.append(_priced(key._replace(slot_unix_s=slot), amounts, place, now_unix_s))
        back = Amounts(millijoules=-millijoules)
        entries.append(_priced(given_back._replace(slot_unix_s=slot), back, place, now_unix_s))
        if with_host:
            back = Amounts(host_joules=-host_joules * share)
            entries.append(_priced(given_back_host._replace(slot_unix_s=slot), back, place, now_unix_s))
    return entries


def interval_entries(interval: MeteredInterval, place: Place, slot_seconds: int, now_unix_s: float) -> list[Entry]:
    """An interval's lines; together they are its total."""
    over = slots(interval.start_unix_s, interval.end_unix_s, slot_seconds)
    shares = [share for _, share in over]
    entries: list[Entry] = []
    for line, millijoules in _parts(interval):
        key = Key(0, line, interval.region, interval.variant, place.site)
        for (slot, _), part in zip(over, split(millijoules, shares), strict=True):
            entries.append(_priced(key._replace(slot_unix_s=slot), Amounts(millijoules=part), place, now_unix_s))
    if isfinite(interval.host_joules):
        key = Key(0, Line.HOST, interval.region, interval.variant, place.site, boundary=Boundary.HOST)
        for slot, share in over:
            amounts = Amounts(host_joules=interval.host_joules * share)
            entries.append(_priced(key._replace(slot_unix_s=slot), amounts, place, now_unix_s))
    return entries


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
    return Amounts(
        requests=1,
        succeeded=int(request.succeeded),
        without_usage=int(request.output_tokens is None),
        prompt_tokens=request.prompt_tokens or 0,
        cached_tokens=request.cached_tokens or 0,
        output_tokens=request.output_tokens or 0,
        ttft_seconds=request.ttft_seconds or 0.0,
        ttft_requests=int(request.ttft_seconds is not None),
        tpot_seconds=request.tpot_seconds or 0.0,
        tpot_requests=int(request.tpot_seconds is not None),
        slo_requests=int(request.broke_slo is not None),
        slo_violations=int(request.broke_slo is True),
    )


def _priced(key: Key, amounts: Amounts, place: Place, now_unix_s: float) -> Entry:
    signal, reading, pue = place.signal, place.reading, place.site.pue
    if signal is None or reading is None or pue is None:
        return key, amounts
    joules = joules_from_millijoules(float(amounts.millijoules)) + amounts.host_joules
    amounts.grams_co2e = grams_co2e(joules, pue, reading.intensity_g_per_kwh)
    amounts.signal_age_seconds = max(now_unix_s - reading.measured_unix_s, 0.0)
    return key._replace(signal=signal), amounts
