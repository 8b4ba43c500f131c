"""Energy, carbon, water and cost as Prometheus counters, and the state of the ledger itself."""

from collections.abc import Callable, Iterator
from math import isfinite

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.carbon.footprint import Draw, Footprint, footprint
from heliotrope.units import joules_from_millijoules
from heliotrope_epp.clock import Clock
from heliotrope_epp.labels import OTHER, LabelCap
from heliotrope_epp.ledger.places import Place, Places
from heliotrope_epp.ledger.rows import Line
from heliotrope_epp.ledger.writer import Health
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest

MAX_LABELS = 50
"""Models and tenants that have counters of their own, each."""
MAX_SERIES = 2_000
"""Combinations of region, variant, model, tenant and arm; models and tenants of further ones count as `other`."""
UNKNOWN = "unknown"

_WHO = ("region", "variant", "model", "tenant", "arm")
_BASIS = ("signal_type", "emission_factor", "source", "estimated", "pue", "boundary")
_ESTIMATED = {True: "true", False: "false", None: UNKNOWN}

Who = tuple[str, str, str, str, str]


class _Children:
    """A counter's children by their labels: faster than the counter's own look-up, and as many."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._known: dict[tuple[str, ...], Counter] = {}

    def labels(self, *values: str) -> Counter:
        child = self._known.get(values)
        if child is None:
            child = self._known[values] = self._counter.labels(*values)
        return child


class EnergyCounters:
    """A `Sink`."""

    def __init__(self, registry: CollectorRegistry, places: Places, clock: Clock) -> None:
        self._places = places
        self._clock = clock
        self._models = LabelCap(MAX_LABELS)
        self._tenants = LabelCap(MAX_LABELS)
        self._who: set[Who] = set()
        self._joules = _Children(
            Counter(
                "heliotrope_energy_joules",
                "Energy of accelerators, by whose it is (line): of requests, idle, for others, or nobody knows.",
                ["line", *_WHO],
                registry=registry,
            )
        )
        self._metered = _Children(
            Counter(
                "heliotrope_metered_energy_joules",
                "What the accelerators' counters moved on: the sum of all lines, requests in flight included.",
                ["region", "variant"],
                registry=registry,
            )
        )
        self._host = _Children(
            Counter(
                "heliotrope_host_energy_joules",
                "The engines' share of their hosts' energy, as the engine models state it.",
                ["region", "variant"],
                registry=registry,
            )
        )
        self._unpriced = _Children(
            Counter(
                "heliotrope_unpriced_energy_joules",
                "Energy that has no grams, because its region had no fresh signal.",
                ["line", *_WHO],
                registry=registry,
            )
        )
        self._unmeasured = _Children(
            Counter(
                "heliotrope_unmeasured_requests",
                "Requests that ended without a believable energy counter.",
                list(_WHO),
                registry=registry,
            )
        )
        self._grams = _Children(
            Counter(
                "heliotrope_grams_co2e",
                "Operational emissions. Sum only over equal signal_type and emission_factor.",
                ["line", *_WHO, *_BASIS],
                registry=registry,
            )
        )
        self._embodied = _Children(
            Counter(
                "heliotrope_embodied_grams_co2e",
                "Emissions of making the hardware that fall on requests (SCI: time × share over lifetime).",
                list(_WHO),
                registry=registry,
            )
        )
        self._water = _Children(
            Counter(
                "heliotrope_water_liters", "Water for the IT energy of requests (WUE).", list(_WHO), registry=registry
            )
        )
        self._cost = _Children(
            Counter(
                "heliotrope_cost",
                "Cost of requests: hardware is the price of the replica, electricity that of the facility's energy.",
                ["component", "currency", *_WHO],
                registry=registry,
            )
        )

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        """Count a finished request."""
        who = self._who_of(request)
        if energy is None:
            self._unmeasured.labels(*who).inc()
            return
        now = self._clock.unix()
        for share in energy.by_engine(request.endpoint, request.region, request.variant):
            there: Who = (share.region or UNKNOWN, share.variant or UNKNOWN, *who[2:])
            place = self._places.of(share.region, share.variant, now)
            joules = joules_from_millijoules(float(share.millijoules))
            draw = Draw(
                accelerator_joules=joules,
                host_joules=share.host_joules if isfinite(share.host_joules) else None,
                reserved_seconds=share.accelerator_seconds if isfinite(share.accelerator_seconds) else None,
            )
            cost = footprint(draw, place.site.factors, place.reading, now)
            self._joules.labels(Line.REQUEST, *there).inc(joules)
            self._add_grams(Line.REQUEST, there, cost)
            self._add_costs(there, cost, place)

    def metered(self, interval: MeteredInterval) -> None:
        """Count what is no request's."""
        now = self._clock.unix()
        place = self._places.of(interval.region, interval.variant, now)
        region, variant = interval.region or UNKNOWN, interval.variant or UNKNOWN
        who: Who = (region, variant, interval.model or UNKNOWN, "", "")
        self._metered.labels(region, variant).inc(joules_from_millijoules(float(interval.total_millijoules)))
        if isfinite(interval.host_joules):
            self._host.labels(region, variant).inc(max(interval.host_joules, 0.0))
        for line, millijoules in (
            (Line.IDLE, interval.idle_millijoules),
            (Line.OTHERS, interval.others_millijoules),
            (Line.UNATTRIBUTED, interval.unattributed_millijoules),
        ):
            if millijoules > 0:
                joules = joules_from_millijoules(float(millijoules))
                cost = footprint(Draw(joules, None, None), place.site.factors, place.reading, now)
                self._joules.labels(line, *who).inc(joules)
                self._add_grams(line, who, cost)

    def _add_grams(self, line: Line, who: Who, cost: Footprint) -> None:
        if cost.operational is None:
            self._unpriced.labels(line, *who).inc(cost.it_joules or 0.0)
            return
        b = cost.operational.basis
        estimated = _ESTIMATED[b.estimated]
        basis = (b.signal_type.value, b.emission_factor.value, b.source, estimated, f"{b.pue:g}", b.boundary.value)
        self._grams.labels(line, *who, *basis).inc(cost.operational.grams_co2e)

    def _add_costs(self, who: Who, cost: Footprint, place: Place) -> None:
        if cost.embodied_grams_co2e is not None:
            self._embodied.labels(*who).inc(cost.embodied_grams_co2e)
        if cost.water_liters is not None:
            self._water.labels(*who).inc(cost.water_liters)
        if cost.hardware_cost is not None:
            self._cost.labels("hardware", place.site.currency or UNKNOWN, *who).inc(cost.hardware_cost)
        if cost.electricity_cost is not None:
            self._cost.labels("electricity", place.site.electricity_currency or UNKNOWN, *who).inc(
                cost.electricity_cost
            )

    def _who_of(self, request: FinishedRequest) -> Who:
        region, variant = request.region or UNKNOWN, request.variant or UNKNOWN
        who = (region, variant, self._models.of(request.model), self._tenants.of(request.tenant), request.arm)
        if who not in self._who:
            if len(self._who) >= MAX_SERIES:
                return (region, variant, OTHER, OTHER, request.arm)
            self._who.add(who)
        return who


class LedgerCollector(Collector):
    """The ledger's own health, read when somebody scrapes."""

    def __init__(self, health: Health, folded: Callable[[], int], unwritten_seconds: Callable[[], float]) -> None:
        self._health = health
        self._folded = folded
        self._unwritten_seconds = unwritten_seconds

    def collect(self) -> Iterator[Metric]:
        """All families."""
        h = self._health
        counters = (
            ("rows_written", "Rows that are on the disk.", h.rows_written),
            ("write_failures", "Writes that failed and are tried again.", h.write_failures),
            ("lost_rows", "Rows that could not be written before the end.", h.lost_rows),
            ("folded_entries", "Entries booked as unrecorded because too many rows waited.", self._folded()),
            ("compacted_segments", "Segments of the journal that became Parquet.", h.segments_compacted),
            ("torn_batches", "Batches that the end of a process cut off.", h.torn_batches),
            ("compaction_failures", "Compactions that failed and are tried again.", h.compaction_failures),
            ("deleted_files", "Parquet files deleted to keep within the ledger's bounds.", h.files_deleted),
        )
        for name, text, value in counters:
            yield CounterMetricFamily(f"heliotrope_ledger_{name}", text, value=value)
        yield GaugeMetricFamily("heliotrope_ledger_size_bytes", "Size of the ledger's folder.", value=h.bytes)
        yield GaugeMetricFamily(
            "heliotrope_ledger_unwritten_seconds",
            "How long the oldest entry is in memory alone.",
            value=self._unwritten_seconds(),
        )
