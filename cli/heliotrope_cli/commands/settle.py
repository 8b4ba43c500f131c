"""`heliotrope settle`: stored joules, priced with what is known of the grid by now."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from heliotrope.carbon.series import unix_seconds
from heliotrope.carbon.settlement import RegionSignal, SignalKind
from heliotrope.carbon.settlement import settle as settled
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import InvalidInputError
from heliotrope.providers.curtailment import with_curtailment_credit
from heliotrope.providers.history import Names, Unit, read_history, settlement_signal
from heliotrope_cli import settle_text
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.tables import console

if TYPE_CHECKING:
    from heliotrope.api.v1alpha1 import RegionProfile
    from heliotrope.carbon.settlement import StoredEnergy

Flag = Annotated[bool, Parameter(negative="")]


def settle(
    ledger: Path,
    /,
    *,
    signals: Annotated[tuple[str, ...], Parameter(name="--signal", negative_iterable="")] = (),
    profiles: Path | None = None,
    secrets_folder: Path | None = None,
    signal_type: Literal["average", "marginal"] | None = None,
    emission_factor: Literal["lifecycle", "direct"] | None = None,
    unit: Literal["g/kWh", "lb/MWh"] = "g/kWh",
    time_column: str | None = None,
    value_column: str | None = None,
    estimated_column: str | None = None,
    alpha: float | None = None,
    partial: Flag = False,
    since: str | None = None,
    until: str | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    write: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Price a ledger's joules anew and print what changed against the grams recorded at run time, with intervals.

    The ledger is only read, and may be in use. Examples:

    Revised average intensity, one file per region:
    `heliotrope settle ledger --signal-type average --signal spain=es.csv#ci_direct --signal norway=no.csv`

    WattTime's marginal history, curtailed hours at half of the usual value:
    `heliotrope settle ledger --signal caiso=moer.json --signal-type marginal --unit lb/MWh --alpha 0.5`

    What the RegionProfiles of a folder name, files or sources that know the past (docs/signals.md):
    `heliotrope settle ledger --profiles resources --secrets-folder secrets`

    Args:
        ledger: Folder that `heliotrope epp --ledger-dir` writes.
        signals: A region and its series as REGION=FILE, or REGION=FILE#COLUMN; CSV or JSON, plain or gzip. Once per
            region.
        profiles: Folder of RegionProfiles whose sources give the series: files and constants are read, sources of the
            network asked for the ledger's span. --signal comes before them.
        secrets_folder: Folder with the keys that those sources need: each is a file SECRET/KEY.
        signal_type: What the files hold: average or marginal; needed with --signal.
        emission_factor: Which emissions they hold; by default lifecycle for average and direct for marginal.
        unit: Unit of the files.
        time_column: Column or key of the time; by default a well-known name such as datetime_utc or point_time.
        value_column: Column or key of the intensity; by default a well-known name such as carbonIntensity or value.
        estimated_column: Column or key that says whether a value is estimated.
        alpha: Credit for curtailed power, 0 to 1: a marginal value of zero counts as alpha × the median of the region's
            other values. 0 takes it as carbon-free, 1 gives no credit.
        partial: Leave the joules of regions without a series unpriced, instead of refusing.
        since: Leave out slots that began before this RFC 3339 time, such as 2026-03-01T00:00:00Z.
        until: Leave out slots that began at this time or later.
        confidence: Of the intervals.
        resamples: Of the bootstrap.
        seed: Of the bootstrap.
        write: Folder, new or empty, for a copy of the whole ledger with the settled grams; `heliotrope ledger` and
            `heliotrope savings` read it.
        as_json: Print one JSON document instead.
    """
    with needs("epp"):
        from heliotrope_epp.ledger.read import opened
        from heliotrope_epp.ledger.stored import stored_energy, write_settled
    if not 0.5 <= confidence < 1.0:
        raise InvalidInputError("--confidence", f"{confidence} is not between 0.5 and 1")
    if not 100 <= resamples <= 1_000_000:
        raise InvalidInputError("--resamples", f"{resamples} is not between 100 and 1000000")
    if alpha is not None and not 0.0 <= alpha <= 1.0:
        raise InvalidInputError("--alpha", f"{alpha} is not between 0 and 1")
    found, asked = _of_profiles(profiles, alpha)
    names = Names(time_column, value_column, estimated_column)
    found |= _of_files(signals, signal_type, emission_factor, Unit(unit), names, alpha)
    asked = {name: profile for name, profile in asked.items() if name not in found}
    kinds = [signal.kind.signal_type.value for signal in found.values()]
    kinds += [profile.spec.signal.type.value for profile in asked.values()]
    if alpha is not None and SignalType.AVERAGE.value in kinds:
        raise InvalidInputError("--alpha", "is for marginal intensity; a zero of average intensity is meant")
    if not found and not asked:
        raise InvalidInputError("--signal", "give the regions' series as REGION=FILE, or --profiles FOLDER")
    with opened(ledger) as connection:
        stored = stored_energy(connection, _unix("--since", since), _unix("--until", until))
        if profiles is not None:  # a folder may hold more regions than the ledger has energy of
            present = set(stored.energy.regions)
            found = {name: signal for name, signal in found.items() if name in present}
            asked = {name: profile for name, profile in asked.items() if name in present}
        found |= _of_sources(asked, secrets_folder, stored.energy, alpha)
        result = settled(stored.energy, found, seed=seed, resamples=resamples, confidence=confidence)
        if result.missing_regions and not partial:
            raise InvalidInputError(
                "--signal",
                f"there is no series for {', '.join(result.missing_regions)}; give one, or --partial to leave their "
                "joules unpriced",
            )
        if write is not None:
            write_settled(connection, found, write)
    beside = settle_text.Beside(stored.unmeasured_requests, stored.pickers, alpha)
    if as_json:
        print(json.dumps(settle_text.document(result, beside), indent=2, allow_nan=False))
        return
    out = console()
    for line in settle_text.lines(result, beside):
        out.print(line, markup=False)
    out.print(settle_text.table(result))
    if write is not None:
        out.print(f"A settled copy of the ledger is in {write}.", markup=False)


def _of_files(
    texts: tuple[str, ...],
    signal_type: str | None,
    emission_factor: str | None,
    unit: Unit,
    names: Names,
    alpha: float | None,
) -> dict[str, RegionSignal]:
    if not texts:
        return {}
    if signal_type is None:
        raise InvalidInputError("--signal-type", "say what the files hold: average or marginal")
    kind = SignalType(signal_type)
    usual = EmissionFactor.LIFECYCLE if kind is SignalType.AVERAGE else EmissionFactor.DIRECT
    factor = usual if emission_factor is None else EmissionFactor(emission_factor)
    found: dict[str, RegionSignal] = {}
    for text in texts:
        region, separator, file = text.partition("=")
        if not separator or not region or not file:
            raise InvalidInputError("--signal", f"{text!r} is not REGION=FILE, such as spain=es.csv")
        if region in found:
            raise InvalidInputError("--signal", f"region {region} is given twice")
        name, _, column = file.partition("#")
        series = read_history(Path(name), replace(names, value=column or names.value), unit)
        if alpha is not None and kind is SignalType.MARGINAL:
            try:
                series = with_curtailment_credit(series, alpha)
            except InvalidInputError as error:
                raise InvalidInputError("--alpha", f"{name}: {error.problem}") from error
        found[region] = RegionSignal(series, SignalKind(kind, factor), f"file {Path(name).name}")
    return found


def _of_profiles(
    folder: Path | None, alpha: float | None
) -> "tuple[dict[str, RegionSignal], dict[str, RegionProfile]]":
    """Signals that can be read at once, and profiles whose sources have to be asked."""
    if folder is None:
        return {}, {}
    from heliotrope.api.v1alpha1 import RegionProfile
    from heliotrope.providers.settling import is_local
    from heliotrope_epp.datalayer.documents import read_resources

    found: dict[str, RegionSignal] = {}
    asked: dict[str, RegionProfile] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            resources = read_resources(path.read_bytes())
        except InvalidInputError as error:
            raise InvalidInputError(str(path), str(error)) from error
        for resource in resources:
            if not isinstance(resource, RegionProfile):
                continue
            if is_local(resource):
                found[resource.metadata.name] = settlement_signal(resource, folder, alpha)
            else:
                asked[resource.metadata.name] = resource
    if not found and not asked:
        raise InvalidInputError("--profiles", f"{folder} holds no RegionProfile")
    return found, asked


def _of_sources(
    profiles: "dict[str, RegionProfile]", secrets: Path | None, energy: "StoredEnergy", alpha: float | None
) -> dict[str, RegionSignal]:
    """What sources of the network say of the span in which a ledger has energy, one after the other."""
    if not profiles or not len(energy):
        return {}
    from heliotrope.providers.online import Online
    from heliotrope.providers.secrets_folder import SecretsFolder
    from heliotrope.providers.settling import asked_signal

    start = float(energy.slot_unix_s.min())
    end = float((energy.slot_unix_s + energy.slot_seconds).max())

    async def ask() -> dict[str, RegionSignal]:
        online = Online(SecretsFolder(secrets))
        return {name: await asked_signal(each, online, start, end, alpha) for name, each in profiles.items()}

    return asyncio.run(ask())


def _unix(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return unix_seconds(text)
    except InvalidInputError as error:
        raise InvalidInputError(name, error.problem) from error
