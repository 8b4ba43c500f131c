"""One row of the ledger: what it is about, what was counted, and what that cost when it was counted."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from heliotrope.carbon.footprint import Boundary, Draw, Embodied, Factors, footprint
from heliotrope.units import joules_from_millijoules


class Line(StrEnum):
    """Whose energy a row is about. Over all lines millijoules add up to what the counters counted."""

    REQUEST = "request"
    IDLE = "idle"
    OTHERS = "others"
    """Tokens of other pickers' and direct clients' requests."""
    UNATTRIBUTED = "unattributed"
    """Drawn over a gap or a reset of a counter, nobody knows by whom."""
    HOST = "host"
    """The hosts' energy that no request carries."""
    UNRECORDED = "unrecorded"
    """Of requests that have no row of their own: those in flight, those lost in a crash, and those of a picker that ran
    out of room for rows. A request's own row takes from it what this line was given while the request ran."""


class Site(NamedTuple):
    """What the place and its hardware cost per unit when a row was written; None: nobody states it."""

    pue: float | None = None
    wue_liters_per_kwh: float | None = None
    electricity_price_per_kwh: float | None = None
    electricity_currency: str | None = None
    price_per_hour: float | None = None
    currency: str | None = None
    embodied_grams_co2e_per_replica: float | None = None
    embodied_lifetime_seconds: float | None = None

    @property
    def factors(self) -> Factors:
        """The same for `footprint`."""
        embodied = None
        if self.embodied_grams_co2e_per_replica is not None and self.embodied_lifetime_seconds is not None:
            embodied = Embodied(self.embodied_grams_co2e_per_replica, self.embodied_lifetime_seconds)
        return Factors(
            pue=self.pue,
            wue_l_per_kwh=self.wue_liters_per_kwh,
            electricity_price_per_kwh=self.electricity_price_per_kwh,
            price_per_hour=self.price_per_hour,
            embodied=embodied,
        )


class Signal(NamedTuple):
    """The meaning of a row's grams."""

    signal_type: str
    emission_factor: str
    signal_source: str
    signal_estimated: bool | None


class Key(NamedTuple):
    """What a row is about. Rows of equal keys are one."""

    slot_unix_s: int
    """Start of the slot of time."""
    line: Line
    region: str | None
    variant: str | None
    site: Site
    signal: Signal | None = None
    """None: no fresh signal was there, so there are no grams."""
    boundary: Boundary = Boundary.ACCELERATORS
    measured: bool = True
    """False: no believable counter covered these requests, so their energy is unknown."""
    model: str | None = None
    tenant: str | None = None
    policy: str | None = None
    arm: str | None = None
    request_class: str | None = None
    asked_model: str | None = None


@dataclass(slots=True)
class Amounts:
    """What was counted under a key. All of it adds up; NaN makes a sum unknown."""

    millijoules: int = 0
    host_joules: float = 0.0
    idle_share_joules: float = 0.0
    accelerator_seconds: float = 0.0
    requests: int = 0
    succeeded: int = 0
    without_usage: int = 0
    """Requests whose tokens no engine told."""
    covered_requests: float = 0.0
    """Sum of the shares of the requests' times that a counter covered."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ttft_seconds: float = 0.0
    ttft_requests: int = 0
    """Requests of which TTFT is known, whose sum stands above; so for TPOT."""
    tpot_seconds: float = 0.0
    tpot_requests: int = 0
    slo_requests: int = 0
    """Requests of which it is known whether their promise was kept."""
    slo_violations: int = 0
    grams_co2e: float = 0.0
    signal_age_seconds: float = 0.0
    """The oldest."""

    def add(self, other: "Amounts") -> None:
        """Count the other in."""
        self.millijoules += other.millijoules
        self.host_joules += other.host_joules
        self.idle_share_joules += other.idle_share_joules
        self.accelerator_seconds += other.accelerator_seconds
        self.requests += other.requests
        self.succeeded += other.succeeded
        self.without_usage += other.without_usage
        self.covered_requests += other.covered_requests
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.output_tokens += other.output_tokens
        self.ttft_seconds += other.ttft_seconds
        self.ttft_requests += other.ttft_requests
        self.tpot_seconds += other.tpot_seconds
        self.tpot_requests += other.tpot_requests
        self.slo_requests += other.slo_requests
        self.slo_violations += other.slo_violations
        self.grams_co2e += other.grams_co2e
        self.signal_age_seconds = max(self.signal_age_seconds, other.signal_age_seconds)


def row(key: Key, amounts: Amounts, slot_seconds: int, picker: str) -> dict[str, Any]:
    """The row as it is stored: the columns of `heliotrope_epp.ledger.columns`, those that are unknown left out."""
    energy = key.measured
    of_request = key.line is Line.REQUEST
    with_host = key.boundary is not Boundary.ACCELERATORS
    costs = footprint(
        Draw(
            accelerator_joules=joules_from_millijoules(float(amounts.millijoules)) if energy else None,
            host_joules=amounts.host_joules if with_host else None,
            reserved_seconds=amounts.accelerator_seconds if energy and of_request else None,
        ),
        key.site.factors,
        None,
        0.0,
    )
    stored: dict[str, Any] = {
        "slot_unix_s": key.slot_unix_s,
        "slot_seconds": slot_seconds,
        "picker": picker,
        "line": key.line.value,
        "region": key.region,
        "variant": key.variant,
        "model": key.model,
        "asked_model": key.asked_model,
        "tenant": key.tenant,
        "policy": key.policy,
        "arm": key.arm,
        "request_class": key.request_class,
        "measured": key.measured,
        "boundary": key.boundary.value,
        **key.site._asdict(),
        **({} if key.signal is None else key.signal._asdict()),
    }
    if of_request or amounts.requests:
        stored |= {
            "requests": amounts.requests,
            "succeeded": amounts.succeeded,
            "without_usage": amounts.without_usage,
            "prompt_tokens": amounts.prompt_tokens,
            "cached_tokens": amounts.cached_tokens,
            "output_tokens": amounts.output_tokens,
            "ttft_seconds": amounts.ttft_seconds,
            "ttft_requests": amounts.ttft_requests,
            "tpot_seconds": amounts.tpot_seconds,
            "tpot_requests": amounts.tpot_requests,
            "slo_requests": amounts.slo_requests,
            "slo_violations": amounts.slo_violations,
        }
    if energy:
        stored["millijoules"] = amounts.millijoules
        stored["host_joules"] = amounts.host_joules if with_host else None
        if of_request:
            stored["covered_requests"] = amounts.covered_requests
            stored["idle_share_joules"] = amounts.idle_share_joules
            stored["accelerator_seconds"] = amounts.accelerator_seconds
        if key.signal is not None:
            stored["grams_co2e"] = amounts.grams_co2e
            stored["signal_age_seconds"] = amounts.signal_age_seconds
    stored["embodied_grams_co2e"] = costs.embodied_grams_co2e
    stored["water_liters"] = costs.water_liters
    stored["hardware_cost"] = costs.hardware_cost
    stored["electricity_cost"] = costs.electricity_cost
    return {name: value for name, value in stored.items() if value is not None and value == value}  # NaN: unknown
