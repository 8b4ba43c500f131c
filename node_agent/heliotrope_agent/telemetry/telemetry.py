"""What the GPUs of the node draw, sampled, booked on pods and shown.

Two threads: one reads energy counters, ten times a second if wanted; another looks once a second at everything that may
take longer, GPUs' other readings and the kubelet. The page is made from what both have seen last.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from heliotrope.api.v1alpha1.nodepower import PowerIntent
from heliotrope.engine.counters import CounterLimits
from heliotrope.units import joules_from_millijoules
from heliotrope_agent.driver.interface import Device, Driver, Reading
from heliotrope_agent.errors import DriverError, PodsUnknownError
from heliotrope_agent.pods.claims import Claim
from heliotrope_agent.telemetry.dcgm import GpuNow, dcgm_families
from heliotrope_agent.telemetry.energy import EnergyBooks, line_of
from heliotrope_agent.telemetry.exposition import Family, label_text, page
from heliotrope_agent.telemetry.power import PowerHistogram
from heliotrope_agent.telemetry.tenants import Tenancy, tenancy
from heliotrope_agent.telemetry.ticker import Ticker

_log = logging.getLogger(__name__)

LOOK_PERIOD_S = 1.0
STALE_AFTER_S = 5.0
"""Readings that are older are shown no more."""


class Telemetry:
    """Samples from `start` to `stop`; pages may be asked for at any time, from any thread."""

    def __init__(
        self,
        driver: Driver,
        claims: Callable[[], Mapping[str, Sequence[Claim]]],
        intents: Callable[[], Iterable[PowerIntent]],
        *,
        node_name: str,
        period_s: float = 1.0,
        dcgm_names: bool = True,
        max_watts: float = 2_000.0,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is opened or read before `start`.

        Args:
            driver: whose GPUs.
            claims: what the kubelet gave away, by UUID; raises `PodsUnknownError`.
            intents: those known, which tell a pod's variant and role.
            node_name: the label `Hostname`.
            period_s: time between two samples of energy, at most a second.
            dcgm_names: whether `page` has the DCGM-named series; `dcgm_page` always does.
            max_watts: a counter that rises faster is not believed.
            clock: monotonic seconds.
            unix_clock: seconds since 1970, to say when a sample was taken.
        """
        self._driver = driver
        self._claims = claims
        self._intents = intents
        self._node_name = node_name
        self._period_s = period_s
        self._dcgm_names = dcgm_names
        self._clock = clock
        self._unix_clock = unix_clock
        self._sampler = Ticker("energy", period_s, self.sample, clock=clock)
        self._looker = Ticker("telemetry", LOOK_PERIOD_S, self.look, clock=clock)
        self._lock = threading.Lock()
        self._devices: tuple[Device, ...] = ()
        self._readings: dict[str, Reading] = {}
        self._energy: dict[str, int] = {}
        self._tenancy: Tenancy = {}
        self._sampled_s = self._looked_s = self._heard_s = -float("inf")
        self._sampled_unix_s: float | None = None
        self._books = EnergyBooks(CounterLimits(max_watts=max_watts))
        self._power: dict[str, PowerHistogram] = {}
        self._errors: dict[str, int] = dict.fromkeys(("devices", "energy", "readings", "pods"), 0)

    def start(self) -> None:
        """Begin to sample."""
        self._looker.start()
        self._sampler.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """End; a thread that hangs in the driver is left behind."""
        if not (self._sampler.stop(timeout_s) & self._looker.stop(timeout_s)):
            _log.warning("a thread of telemetry hangs in the driver or in the kubelet; it is left behind")

    def problem(self) -> str | None:
        """Why nothing is sampled; None: it is."""
        with self._lock:
            age_s = self._clock() - self._sampled_s
        if age_s <= STALE_AFTER_S:
            return None
        return "no GPU was sampled yet" if age_s == float("inf") else f"no GPU was sampled for {age_s:.0f} s"

    def sample(self) -> None:
        """Read every energy counter."""
        if not self._devices and not self._find_devices():
            return
        values = [(device.uuid, self._energy_now(device), self._clock()) for device in self._devices]
        with self._lock:
            for uuid, value, now_s in values:
                watts = self._books.counter(uuid, value, now_s)
                if watts is not None:
                    self._power.setdefault(uuid, PowerHistogram()).observe(watts)
            self._energy = {uuid: value for uuid, value, _ in values if value is not None}
            self._sampled_s, self._sampled_unix_s = self._clock(), self._unix_clock()

    def look(self) -> None:
        """Read everything else, and ask the kubelet."""
        self._find_devices()
        devices = self._devices
        readings = {}
        for device in devices:
            try:
                readings[device.uuid] = self._driver.read(device.uuid)
            except DriverError as error:
                self._failed("readings", error)
        try:
            heard = tenancy(self._claims(), self._intents())
        except (PodsUnknownError, DriverError) as error:
            heard = None
            self._failed("pods", error)
        with self._lock:
            now_s = self._clock()
            self._readings, self._looked_s = readings, now_s
            if heard is not None:
                self._tenancy, self._heard_s = heard, now_s
                self._books.look({device.uuid: line_of(device, heard) for device in devices}, now_s)

    def page(self) -> bytes:
        """All series, in Prometheus' text format."""
        with self._lock:
            families = self._own_families()
            if self._dcgm_names:
                families = dcgm_families(self._now(), self._node_name) + families
        return page(families)

    def dcgm_page(self) -> bytes:
        """The DCGM-named series alone: what a picker reads."""
        with self._lock:
            families = dcgm_families(self._now(), self._node_name)
        return page(families)

    def _energy_now(self, device: Device) -> int | None:
        try:
            return self._driver.energy_millijoules(device.uuid)
        except DriverError as error:
            self._failed("energy", error)
            return None

    def _find_devices(self) -> bool:
        """Whether the driver has told which GPUs there are; else they are those of before."""
        try:
            self._devices = self._driver.devices()
        except DriverError as error:
            self._failed("devices", error)
            return False
        return True

    def _failed(self, source: str, error: Exception) -> None:
        with self._lock:
            self._errors[source] += 1
        _log.debug("%s could not be read: %s", source, error)

    def _now(self) -> list[GpuNow]:
        now_s = self._clock()
        sampled, looked = now_s - self._sampled_s <= STALE_AFTER_S, now_s - self._looked_s <= STALE_AFTER_S
        tenants = self._tenancy if now_s - self._heard_s <= self._books.patience.silence_s else {}
        return [
            GpuNow(
                device,
                self._readings.get(device.uuid, _NOTHING) if looked else _NOTHING,
                self._energy.get(device.uuid) if sampled else None,
                tenants.get(device.uuid, ()),
            )
            for device in self._devices
        ]

    def _own_families(self) -> list[Family]:
        return [self._info(), *self._joules(), self._watts(), *self._health()]

    def _info(self) -> Family:
        info = Family("heliotrope_agent_gpu_info", "gauge", "GPUs of the node; always 1.")
        for device in self._devices:
            names = {
                "uuid": device.uuid,
                "gpu": str(device.index),
                "product": device.product,
                "vendor": device.vendor.value,
                "mig": "true" if device.mig else "false",
            }
            info.add(label_text(names), 1)
        return info

    def _joules(self) -> Iterable[Family]:
        books = self._books
        gpus = Family(
            "heliotrope_agent_gpu_energy_joules_total", "counter", "Energy of a GPU since the agent started, as booked."
        )
        pods = Family(
            "heliotrope_agent_pod_energy_joules_total", "counter", "Energy of GPUs while a pod had them to itself."
        )
        nobody = Family(
            "heliotrope_agent_unattributed_energy_joules_total",
            "counter",
            "Energy of GPUs that is no pod's: free, shared by several, or unknown whose.",
        )
        ended = Family(
            "heliotrope_agent_ended_pods_energy_joules_total",
            "counter",
            "Energy of pods that are shown no more. With it the lines add up to the GPUs' energy.",
        )
        for uuid, millijoules in books.gpus.items():
            gpus.add(label_text({"uuid": uuid}), joules_from_millijoules(millijoules))
        for payer, millijoules in books.pods.items():
            names = {
                "namespace": payer.pod.namespace,
                "pod": payer.pod.name,
                "variant": payer.variant or "",
                "role": payer.role or "",
            }
            pods.add(label_text(names), joules_from_millijoules(millijoules))
        for (uuid, reason), millijoules in books.nobody.items():
            nobody.add(label_text({"uuid": uuid, "reason": reason.value}), joules_from_millijoules(millijoules))
        ended.add("", joules_from_millijoules(books.ended_millijoules))
        return gpus, pods, nobody, ended

    def _watts(self) -> Family:
        power = Family(
            "heliotrope_agent_gpu_power_watts",
            "histogram",
            "Mean power of a GPU between two changes of its energy counter, at most one for each sample.",
        )
        for uuid, histogram in self._power.items():
            power.add_histogram({"uuid": uuid}, histogram)
        return power

    def _health(self) -> Iterable[Family]:
        samples = Family("heliotrope_agent_samples_total", "counter", "Samples of all energy counters.")
        samples.add("", self._sampler.ticks)
        missed = Family(
            "heliotrope_agent_missed_samples_total", "counter", "Samples that were left out because one took too long."
        )
        for source, ticker in (("energy", self._sampler), ("readings", self._looker)):
            missed.add(label_text({"source": source}), ticker.missed)
        errors = Family("heliotrope_agent_sample_errors_total", "counter", "What could not be read.")
        for source, count in self._errors.items():
            errors.add(label_text({"source": source}), count)
        errors.add(label_text({"source": "defect"}), self._sampler.defects + self._looker.defects)
        refused = Family(
            "heliotrope_agent_refused_energy_readings_total", "counter", "Readings of counters that are not believed."
        )
        for reason, count in self._books.refused.items():
            refused.add(label_text({"reason": reason.value}), count)
        when = Family(
            "heliotrope_agent_sample_timestamp_seconds", "gauge", "When energy counters were last read (Unix time)."
        )
        when.add("", self._sampled_unix_s)
        period = Family("heliotrope_agent_sample_period_seconds", "gauge", "Time between two samples of energy.")
        period.add("", self._period_s)
        known = Family(
            "heliotrope_agent_pods_known", "gauge", "Whether the kubelet has told lately which pods have which GPUs."
        )
        known.add("", int(self._clock() - self._heard_s <= STALE_AFTER_S))
        return samples, missed, errors, refused, when, period, known


_NOTHING = Reading()
