"""A calibration from the options of a user to its files: what is checked, planned, run and kept."""

import asyncio
import random
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from heliotrope.errors import InvalidInputError
from heliotrope.units import kwh_from_joules, watts_from_milliwatts
from heliotrope_agent.calibrate.clocks import spread_out
from heliotrope_agent.calibrate.custody import WATCHDOG_SECONDS, Custody
from heliotrope_agent.calibrate.engine import EngineClient
from heliotrope_agent.calibrate.errors import NodeInUseError, RecordError, StoppedError
from heliotrope_agent.calibrate.foreign import check_processes
from heliotrope_agent.calibrate.gpus import check, chosen, clocks_of
from heliotrope_agent.calibrate.pace import Pace
from heliotrope_agent.calibrate.record import Gpu, Record, Subject, going_on, load, written
from heliotrope_agent.calibrate.run import Calibration, Watcher
from heliotrope_agent.calibrate.settings import Sweep
from heliotrope_agent.calibrate.sizes import most_answer_tokens
from heliotrope_agent.calibrate.sweep import Estimate, Task, estimate
from heliotrope_agent.driver.interface import Device, Driver
from heliotrope_agent.errors import StateError
from heliotrope_agent.settings import STATE_FOLDER

RAW = "raw.json"
PROFILE = "energy-profile.yaml"
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Options:
    """What a user asks for."""

    url: str
    output: Path
    sweep: Sweep
    """Without its clocks, which the GPUs tell."""
    clocks: tuple[int, ...] = ()
    """SM clocks to measure; empty: `clock_count` of the range."""
    clock_count: int = 7
    min_mhz: int | None = None
    max_mhz: int | None = None
    gpus: tuple[str, ...] = ()
    model: str | None = None
    api_key: str | None = None
    engine_pid: int | None = None
    time_scale: float = 1.0
    resume: bool = False
    state_folder: Path = STATE_FOLDER
    original_mhz: int | None = None
    watchdog_s: float = WATCHDOG_SECONDS


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done, before anything is."""

    devices: tuple[Device, ...]
    record: Record
    """Empty, or what is gone on from."""
    left: Estimate
    most_joules: float | None
    """If the GPUs drew their power limits all the time; None: the limits are unknown."""
    remarks: tuple[str, ...]
    """What could not be verified."""

    @property
    def most_kwh(self) -> float | None:
        """The same in kWh."""
        return None if self.most_joules is None else kwh_from_joules(self.most_joules)


class Session:
    """One calibration.

    Args:
        options: of the user.
        driver: of the node's GPUs.
    """

    def __init__(self, options: Options, driver: Driver) -> None:
        self._options = options
        self._driver = driver
        self.pace = Pace(options.time_scale)
        """The engine's time."""

    @property
    def raw(self) -> Path:
        """The file with every window."""
        return self._options.output / RAW

    @property
    def profile(self) -> Path:
        """The file with the energy profile."""
        return self._options.output / PROFILE

    async def plan(self) -> Plan:
        """Look at engine and GPUs; changes nothing, so that a signal may end it.

        Raises:
            InvalidInputError: if something asked for cannot be.
            EngineUnreachableError: if the engine does not answer.
            NodeInUseError: if somebody else uses the engine or its GPUs.
            NoEnergyCounterError: if nothing can be measured.
            RecordError: if there is a record already, or none to go on from.
            DriverError: if the driver fails.
        """
        # The agent's image starts programs with these signals blocked, until they say that they are ready for them.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        options = self._options
        old = self._old()
        devices = chosen(self._driver, options.gpus)
        check(self._driver, devices)
        sweep = self._sweep(devices)
        async with self._client() as client:
            facts = await client.facts()
            page = await client.page()
            if page.in_flight:
                raise NodeInUseError(
                    f"the engine serves {page.in_flight} requests: take it out of its pool or Service, and wait until "
                    "they have ended"
                )
        _check_room(sweep, facts.max_model_len)
        readings = {device.uuid: self._driver.read(device.uuid) for device in devices}
        remarks = check_processes({uuid: each.processes for uuid, each in readings.items()}, options.engine_pid)
        gpus = tuple(Gpu(device.uuid, device.product) for device in devices)
        subject = Subject(options.url, facts.model, facts.version, facts.max_model_len, gpus)
        record = Record(sweep, subject, time.time()) if old is None else going_on(old, sweep, subject)
        left = estimate(sweep, record)
        limits = [readings[device.uuid].power_limit_milliwatts or device.milliwatts_default for device in devices]
        watts = [watts_from_milliwatts(float(limit)) for limit in limits if limit is not None]
        most = sum(watts) * left.seconds if len(watts) == len(devices) else None
        return Plan(devices, record, left, most, remarks)

    async def run(self, plan: Plan, begun: Callable[[Task, Record], None]) -> Record:
        """Measure, keep everything, and leave the GPUs as they were.

        Args:
            plan: of `plan`.
            begun: told of each task.

        Raises:
            StoppedError: if a signal came; what was measured is kept.
            AnotherAgentError: if an agent manages the node.
            CalibrationError: as `Calibration.run`.
            StateError: if originals cannot be kept on disk; then nothing was changed.
        """
        options = self._options
        for folder in (options.state_folder, options.output):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StateError(f"the folder {folder} cannot be made: {error.strerror}") from error
        keeper = _Keeper(self.raw, begun)
        keeper.kept(plan.record)
        task = asyncio.current_task()
        assert task is not None
        stopped_by: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            if not stopped_by:
                stopped_by.append(number)
                task.cancel()

        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, stop, number)
        try:
            with Custody(
                self._driver,
                options.state_folder,
                original_mhz=options.original_mhz,
                watchdog_s=options.watchdog_s,
            ) as custody:
                async with self._client() as client:
                    await client.facts()
                    uuids = tuple(device.uuid for device in plan.devices)
                    calibration = Calibration(
                        self._driver, uuids, client, self.pace, custody, keeper, options.engine_pid
                    )
                    record = await calibration.run(plan.record)
        except asyncio.CancelledError:
            if not stopped_by:
                raise
            raise StoppedError(stopped_by[0], self.raw) from None
        finally:
            for number in STOPPING:
                loop.remove_signal_handler(number)
        keeper.complete(record)
        return record

    def _client(self) -> EngineClient:
        options = self._options
        rng = random.Random(secrets.randbits(64))
        return EngineClient(options.url, self.pace, model=options.model, api_key=options.api_key, rng=rng)

    def _old(self) -> Record | None:
        if self._options.resume:
            return load(self.raw)
        if self.raw.exists():
            raise RecordError(f"{self.raw} exists: go on from it with --resume, or choose another --output")
        return None

    def _sweep(self, devices: tuple[Device, ...]) -> Sweep:
        options = self._options
        candidates = clocks_of(devices, options.min_mhz, options.max_mhz)
        if options.clocks:
            supported = clocks_of(devices, 0, None)
            if unknown := sorted({*options.clocks} - {*supported}):
                raise InvalidInputError(
                    "--clocks",
                    f"the GPUs do not support {', '.join(map(str, unknown))} MHz; they have {supported[0]} to "
                    f"{supported[-1]}, see nvidia-smi -q -d SUPPORTED_CLOCKS",
                )
            clocks = tuple(sorted({*options.clocks}, reverse=True))
            candidates = tuple(mhz for mhz in supported if clocks[-1] <= mhz <= clocks[0])
        else:
            clocks = spread_out(candidates, options.clock_count) if candidates else ()
        sweep = replace(options.sweep, clocks=clocks, candidates=candidates)
        sweep.check()
        return sweep


def _check_room(sweep: Sweep, max_model_len: int | None) -> None:
    """Refuse prompts that the model's context has no room for."""
    most_answer_tokens(sweep.decode_prompt_tokens, max_model_len)
    if max_model_len is not None and sweep.prompt_tokens >= max_model_len:
        raise InvalidInputError(
            "--prompt-tokens", f"{sweep.prompt_tokens} and an answer exceed the model's context of {max_model_len}"
        )


class _Keeper(Watcher):
    """Keeps the record on disk, whole at every moment."""

    def __init__(self, path: Path, begun: Callable[[Task, Record], None]) -> None:
        self._path = path
        self._begun = begun

    def begun(self, task: Task, record: Record) -> None:
        """Tell the user."""
        self._begun(task, record)

    def kept(self, record: Record) -> None:
        """Write it."""
        self._write(written(record, complete=False))

    def complete(self, record: Record) -> None:
        """Write it for the last time."""
        self._write(written(record, complete=True))

    def _write(self, text: str) -> None:
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            raise RecordError(f"{self._path} cannot be written: {error.strerror}") from error
