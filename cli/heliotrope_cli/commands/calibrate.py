"""`heliotrope calibrate`: measures an engine's energy profile on the GPUs of this node."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.prompt import Confirm

from heliotrope.errors import InvalidInputError
from heliotrope_cli import calibrate_text
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.logs import configure
from heliotrope_cli.output import show

if TYPE_CHECKING:
    from heliotrope.api.v1alpha1.workloadvariant import Phase
    from heliotrope_agent.calibrate.record import Record
    from heliotrope_agent.calibrate.session import Session

Flag = Annotated[bool, Parameter(negative="")]
Numbers = Annotated[tuple[int, ...], Parameter(negative_iterable="")]
EXIT_SIGNALLED = 128
MILLISECONDS = 1_000.0


def calibrate(
    engine: str,
    /,
    *,
    gpus: Annotated[tuple[str, ...], Parameter(name="--gpu", negative_iterable="")] = (),
    model: str | None = None,
    variant_file: Path | None = None,
    variant: str | None = None,
    namespace: str | None = None,
    output: Path = Path("calibration"),
    phases: Annotated[tuple[Literal["prefill", "decode"], ...], Parameter(name="--phase", negative_iterable="")] = (),
    clocks: Annotated[str | None, Parameter(name="--clocks")] = None,
    clock_count: int = 7,
    min_mhz: int | None = None,
    max_mhz: int | None = None,
    batches: str = "8,32",
    batch: int | None = None,
    tpot_ms: float | None = None,
    prompts_in_flight: str = "32",
    prompt_tokens: int = 2048,
    decode_prompt_tokens: int = 256,
    window_seconds: float = 10.0,
    idle_seconds: float = 10.0,
    settle_seconds: float = 5.0,
    repeats: int = 3,
    max_repeats: int = 8,
    target_percent: float = 3.0,
    refinements: int = 10,
    resume: Flag = False,
    dry_run: Flag = False,
    yes: Flag = False,
    state_folder: Path = Path("/var/lib/heliotrope"),
    original_sm_clock_mhz: int | None = None,
    watchdog_seconds: float = 15.0,
    engine_pid: int | None = None,
    api_key_file: Path | None = None,
    time_scale: float = 1.0,
    log_level: Literal["debug", "info", "warning", "error"] = "warning",
    log_format: Literal["text", "json"] = "text",
) -> None:
    """Measure what an engine's phases draw at each SM clock, and write the energyProfile of its WorkloadVariant.

    Runs on the GPU node of the engine, which must be given up for it: nobody else may use engine or GPUs, and the
    node's agent must be off (docs/calibrate.md). It shows what it will do first, locks SM clocks one after the other,
    and puts them back however it ends. Examples:

    What would be done: `heliotrope calibrate http://127.0.0.1:8000 --dry-run`

    A decode variant that promises 40 ms per token, written as a whole document:
    `heliotrope calibrate http://127.0.0.1:8000 --variant-file variant.yaml --batches 8,16,32,64 --tpot-ms 40`

    Go on after Ctrl-C: the same command with --resume.

    Args:
        engine: Base address of the engine's OpenAI API, such as http://127.0.0.1:8000; vLLM or the emulator.
        gpus: GPU of the engine by UUID or index; may be given several times. By default those with processes.
        model: Model as requests name it; by default the one that the engine serves.
        variant_file: WorkloadVariant whose energyProfile is replaced in the file that is written; its role says which
            phases are measured.
        variant: Name of the WorkloadVariant that a patch is written for, without --variant-file.
        namespace: Namespace of the same.
        output: Folder for raw.json and energy-profile.yaml.
        phases: Measure this phase; may be given twice. By default those of the variant's role, else both.
        clocks: SM clocks in MHz to measure, separated by commas; by default --clock-count of the range.
        clock_count: How many clocks are measured over the whole range before it looks more closely at the minimum.
        min_mhz: Lowest SM clock; by default a quarter of the highest.
        max_mhz: Highest SM clock.
        batches: Sequences that decode together, separated by commas.
        batch: The one of them that the profile is written for; by default the largest, or --tpot-ms chooses.
        tpot_ms: Promised time per output token: the profile is of the largest batch that keeps it at the highest clock.
        prompts_in_flight: Prompts in flight in prefill, separated by commas; the most of them is the profile's.
        prompt_tokens: Length of prompts in prefill.
        decode_prompt_tokens: Length of prompts in decode.
        window_seconds: Length of a window at the highest clock.
        idle_seconds: How long idle power is measured at each clock.
        settle_seconds: How long nothing is measured after a change of clock, at least.
        repeats: Fewest windows of a point.
        max_repeats: Most windows of a point.
        target_percent: Half width of the 90 % interval of J/token at which a point needs no further window.
        refinements: Most clocks that are tried near the minimum, per phase.
        resume: Go on from the output folder's raw.json.
        dry_run: Show the plan and change nothing.
        yes: Do not ask before it begins.
        state_folder: Folder of the node's agent, which says who has the GPUs.
        original_sm_clock_mhz: SM clock that this node's GPUs are locked to at rest, which is put back; by default none.
        watchdog_seconds: Without a sign of life for so long, as when it was stopped, a process that it starts for this
            kills the calibration and puts the GPUs back; a step that hangs is noticed half a minute later.
        engine_pid: Process whose descendants alone may use the GPUs; by default all must be of one container.
        api_key_file: File with the engine's API key.
        time_scale: Engine seconds per second of an emulated engine; 1 for real ones.
        log_level: Least severe level to log.
        log_format: One JSON object a line, or text for people.
    """
    with needs("agent"):
        from heliotrope_agent.calibrate.errors import StoppedError
        from heliotrope_agent.calibrate.profile import completed, patch, phase_profiles
        from heliotrope_agent.calibrate.session import Options, Session
        from heliotrope_agent.calibrate.settings import Sweep
        from heliotrope_agent.driver.find import close_in_time, find_driver
    configure(log_level, as_json=log_format == "json", stream=sys.stderr)
    if variant_file is not None and (variant is not None or namespace is not None):
        raise InvalidInputError("--variant", "--variant-file names the variant already")
    if not 0 < time_scale <= 1_000:
        raise InvalidInputError("--time-scale", f"{time_scale:g} is not above 0 and at most 1000")
    if not 1.0 <= watchdog_seconds <= 3_600.0:
        raise InvalidInputError("--watchdog-seconds", f"{watchdog_seconds:g} is not between 1 and 3600")
    document, measured_phases = _variant(variant_file, phases)
    sweep = Sweep(
        clocks=(),
        candidates=(),
        phases=measured_phases,
        decode_batches=_numbers("--batches", batches),
        prefill_batches=_numbers("--prompts-in-flight", prompts_in_flight),
        batch=batch,
        tpot_seconds=None if tpot_ms is None else tpot_ms / MILLISECONDS,
        prompt_tokens=prompt_tokens,
        decode_prompt_tokens=decode_prompt_tokens,
        window_seconds=window_seconds,
        idle_seconds=idle_seconds,
        settle_seconds=settle_seconds,
        min_repeats=repeats,
        max_repeats=max_repeats,
        target_percent=target_percent,
        refinements=refinements,
    )
    options = Options(
        url=engine,
        output=output,
        sweep=sweep,
        clocks=_numbers("--clocks", clocks) if clocks is not None else (),
        clock_count=clock_count,
        min_mhz=min_mhz,
        max_mhz=max_mhz,
        gpus=gpus,
        model=model,
        api_key=_api_key(api_key_file),
        engine_pid=engine_pid,
        time_scale=time_scale,
        resume=resume,
        state_folder=state_folder,
        original_mhz=original_sm_clock_mhz,
        watchdog_s=watchdog_seconds,
    )
    driver = find_driver()
    try:
        session = Session(options, driver)
        try:
            record = asyncio.run(_calibrate(session, dry_run=dry_run, yes=yes))
        except StoppedError as error:
            Console(stderr=True, highlight=False).print(f"heliotrope: {error}", markup=False)
            sys.exit(EXIT_SIGNALLED + error.number)
    finally:
        close_in_time(driver)
    if record is None:
        return
    found = phase_profiles(record)
    text = patch(found, variant, namespace) if document is None else completed(document, found)
    session.profile.write_text(text, encoding="utf-8")
    show(calibrate_text.results(record, found), calibrate_text.tables(found))
    show(calibrate_text.next_steps(session, variant, namespace, whole=document is not None), ())


async def _calibrate(session: "Session", *, dry_run: bool, yes: bool) -> "Record | None":
    plan = await session.plan()
    show(calibrate_text.plan(plan, session), [calibrate_text.gpu_table(plan)])
    if dry_run:
        return None
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInputError("--yes", "nobody can be asked here; give --yes to begin without being asked")
        if not await asyncio.to_thread(Confirm.ask, "Begin?", default=False):
            return None
    with calibrate_text.Watch(Console(stderr=True, highlight=False), plan, session) as watch:
        return await session.run(plan, watch.begun)


def _variant(
    path: Path | None, phases: tuple[Literal["prefill", "decode"], ...]
) -> "tuple[dict[str, object] | None, tuple[Phase, ...]]":
    from heliotrope.api.v1alpha1.workloadvariant import Phase
    from heliotrope_agent.calibrate.profile import phases_of, read_variant

    named = tuple(phase for phase in Phase if phase.value in phases)
    if path is None:
        return None, named or tuple(Phase)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError("--variant-file", f"{path} cannot be read: {error}") from error
    document, found = read_variant(text)
    served = phases_of(found.spec.role)
    if any(phase not in served for phase in named):
        raise InvalidInputError("--phase", f"{found.metadata.name} has the role {found.spec.role.value}")
    return dict(document), named or served


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InvalidInputError(name, f"{text!r} is not a list of whole numbers such as 8,16,32") from None
    if found[0] < 1:
        raise InvalidInputError(name, "must be numbers of at least 1")
    return tuple(found)


def _api_key(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError("--api-key-file", f"{path} cannot be read: {error}") from error
