"""`heliotrope settle` and `heliotrope ledger` over a ledger as a picker leaves it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.carbon_apis import EM_TOKEN, WT_PASSWORD, WT_USER, CarbonApis, carbon_apis

from heliotrope_cli.main import main
from heliotrope_epp.ledger.compaction import compact
from heliotrope_epp.ledger.journal import Journal

START = datetime(2026, 1, 5, tzinfo=UTC)
HOURS = 48
KWH_MILLIJOULES = 3_600_000_000
RECORDED = {"es": 100.0, "no": 20.0}


def stored(hour: int, region: str, line: str, arm: str | None, **changes: Any) -> dict[str, Any]:
    """One kWh with a PUE of 1.5, priced at run time with an average signal."""
    row = {
        "slot_unix_s": int((START + timedelta(hours=hour)).timestamp()),
        "slot_seconds": 300,
        "picker": "a",
        "line": line,
        "region": region,
        "variant": "llm/v",
        "arm": arm,
        "policy": "llm/green" if arm else None,
        "measured": True,
        "boundary": "accelerators",
        "pue": 1.5,
        "signal_type": "average",
        "emission_factor": "lifecycle",
        "signal_source": "electricityMaps",
        "signal_estimated": True,
        "millijoules": KWH_MILLIJOULES,
        "grams_co2e": 1.5 * RECORDED[region],
        "requests": 10 if arm else None,
        "output_tokens": 1_000 if arm else None,
        "currency": "USD",
        "hardware_cost": 0.5 if arm else None,
    }
    return {name: value for name, value in {**row, **changes}.items() if value is not None}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ledger")
    book = Journal(folder, "w", 10**9)
    for hour in range(HOURS):
        book.append(
            [
                stored(hour, region, line, arm)
                for region in ("es", "no")
                for line, arm in (("request", "policy"), ("request", "holdout"), ("idle", None))
            ],
            START.timestamp(),
        )
    unmeasured = {"measured": False, "millijoules": None, "grams_co2e": None, "signal_type": None, "requests": 3}
    book.append([stored(0, "es", "request", "policy", **unmeasured)], START.timestamp())
    book.close()
    compact(folder)
    return folder


def series(path: Path, values: dict[int, float] | float) -> Path:
    hours = dict.fromkeys(range(HOURS), values) if isinstance(values, float) else values
    rows = [f"{(START + timedelta(hours=hour)).isoformat()},{value},false" for hour, value in hours.items()]
    path.write_text("\n".join(["datetime,carbonIntensity,isEstimated", *rows]) + "\n")
    return path


def ran(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert ended.value.code in (0, None), captured.err
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 1
    return " ".join(capsys.readouterr().err.split())


def settled(capsys: pytest.CaptureFixture[str], ledger: Path, *arguments: object) -> Any:
    return json.loads(ran(capsys, "settle", ledger, "--json", *arguments))


def test_revised_averages(ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    es, no = series(tmp_path / "es.csv", 110.0), series(tmp_path / "no.csv", 20.0)
    found = settled(capsys, ledger, "--signal", f"es={es}", "--signal", f"no={no}", "--signal-type", "average")
    assert (found["signal_type"], found["emission_factor"]) == ("average", "lifecycle")
    assert (found["unmeasured_requests"], found["pickers"]) == (3, 1)
    spain = found["regions"]["es"]
    assert spain["settled_grams"] == pytest.approx(HOURS * 3 * 1.5 * 110)
    assert spain["recorded_grams"] == pytest.approx(HOURS * 3 * 1.5 * 100)
    assert (spain["change"], spain["change_low"], spain["change_high"]) == pytest.approx((0.1, 0.1, 0.1))
    assert found["regions"]["no"]["change"] == pytest.approx(0.0)
    assert set(found["arms_and_lines"]) == {"policy", "holdout", "idle"}
    assert found["total"]["unpriced_joules"] == 0.0
    assert found["total"]["estimated_joules"] == 0.0


def test_equal_seeds_give_equal_intervals(ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    varying = series(tmp_path / "es.csv", {hour: 80.0 + 5.0 * (hour % 11) for hour in range(HOURS)})
    arguments = ("--signal", f"es={varying}", "--signal-type", "average", "--partial")
    first, again = settled(capsys, ledger, *arguments), settled(capsys, ledger, *arguments)
    assert first == again
    assert first["regions"]["es"]["change_low"] < first["regions"]["es"]["change_high"]
    assert settled(capsys, ledger, *arguments, "--seed", "1") != first


def test_what_the_series_does_not_cover_stays_unpriced(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = series(tmp_path / "es.csv", dict.fromkeys(range(HOURS // 2), 110.0))
    arguments = ("--signal", f"es={half}", "--signal-type", "average", "--partial")
    found = settled(capsys, ledger, *arguments)
    joules_per_kwh = KWH_MILLIJOULES / 1_000
    assert found["regions"]["es"]["unpriced_joules"] == pytest.approx(HOURS / 2 * 3 * joules_per_kwh)
    assert found["missing_regions"] == ["no"]
    text = " ".join(ran(capsys, "settle", ledger, *arguments).split())
    assert "Priced: 25.0% of 288.000 kWh" in text
    assert "Unpriced: 216.000 kWh (no series for no)" in text
    assert "3 requests had no energy counter" in text
    assert "× PUE as recorded" in text


def test_marginal_with_and_without_credit_for_curtailment(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {hour: 0.0 if hour % 2 else 1_000.0 for hour in range(HOURS)}
    moer = series(tmp_path / "moer.csv", values)
    arguments = ("--signal", f"es={moer}", "--signal-type", "marginal", "--unit", "lb/MWh", "--partial")
    clean = settled(capsys, ledger, *arguments)
    full = settled(capsys, ledger, *arguments, "--alpha", "1")
    grams = HOURS / 2 * 3 * 1.5 * 453.59237
    assert clean["regions"]["es"]["settled_grams"] == pytest.approx(grams)
    assert full["regions"]["es"]["settled_grams"] == pytest.approx(2 * grams)
    assert (full["curtailment_credit"], full["emission_factor"]) == (1.0, "direct")
    # Recorded with an average signal: told, not compared.
    assert clean["total"]["recorded_grams"] == 0.0
    assert clean["total"]["change"] is None
    assert "never compared" in ran(capsys, "settle", ledger, *arguments)


PROFILE = """apiVersion: heliotrope.io/v1alpha1
kind: RegionProfile
metadata: {{name: "{name}"}}
spec:
  zone: X
  signal: {{type: {type}, emissionFactor: {factor}}}
  source: {{file: {{path: {name}.csv, timeColumn: datetime, valueColumn: carbonIntensity}}}}
---
"""


def test_the_files_of_profiles(ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    average = {"type": "average", "factor": "lifecycle"}
    names = ("es", "no", "unused")
    (tmp_path / "regions.yaml").write_text("".join(PROFILE.format(name=name, **average) for name in names))
    for name in names:
        series(tmp_path / f"{name}.csv", 50.0)
    found = settled(capsys, ledger, "--profiles", tmp_path)
    assert set(found["sources"]) == {"es", "no"}
    assert found["regions"]["es"]["change"] == pytest.approx(-0.5)
    assert "a zero of average intensity is meant" in refused(
        capsys, "settle", ledger, "--profiles", tmp_path, "--alpha", "0.5"
    )


def test_profiles_of_two_kinds_are_refused(ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PROFILE.format(name="es", type="average", factor="lifecycle")
    (tmp_path / "regions.yaml").write_text(text + PROFILE.format(name="no", type="marginal", factor="direct"))
    for name in ("es", "no"):
        series(tmp_path / f"{name}.csv", 50.0)
    assert "different kinds (es: average lifecycle, no: marginal direct)" in refused(
        capsys, "settle", ledger, "--profiles", tmp_path
    )


@pytest.mark.slow
def test_a_settled_copy_is_a_ledger(ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in ledger.rglob("*") if path.is_file()}
    es = series(tmp_path / "es.csv", 110.0)
    copy = tmp_path / "settled"
    arguments = ("--signal", f"es={es}", "--signal-type", "average", "--partial")
    settled(capsys, ledger, *arguments, "--write", copy)
    assert {path: path.read_bytes() for path in ledger.rglob("*") if path.is_file()} == before
    again = settled(capsys, copy, *arguments)
    assert again["regions"]["es"]["change"] == pytest.approx(0.0)
    # What no series covered has no grams any more, and no energy is lost.
    assert again["regions"]["no"]["recorded_grams"] == 0.0
    assert again["total"]["it_joules"] == pytest.approx(HOURS * 6 * KWH_MILLIJOULES / 1_000)
    rows = json.loads(ran(capsys, "ledger", copy, "--json", "--by", "region"))
    assert [(row["region"], row["signal_type"]) for row in rows] == [("es", "average"), ("es", None), ("no", None)]
    assert "is not empty" in refused(capsys, "settle", ledger, *arguments, "--write", copy)


def test_since_and_until(ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    es = series(tmp_path / "es.csv", 110.0)
    times = ("--since", "2026-01-05T10:00:00Z", "--until", "2026-01-05T20:00:00Z")
    found = settled(capsys, ledger, "--signal", f"es={es}", "--signal-type", "average", "--partial", *times)
    assert found["total"]["it_joules"] == pytest.approx(10 * 6 * KWH_MILLIJOULES / 1_000)
    rows = json.loads(ran(capsys, "ledger", ledger, "--json", "--by", "hour", *times))
    assert len(rows) == 10
    assert rows[0]["hour"] == "2026-01-05T10:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--signal: give the regions' series as REGION=FILE"),
        (("--signal", "es={es}"), "--signal-type: say what the files hold"),
        (
            ("--signal", "es={es}", "--signal-type", "average"),
            "--signal: there is no series for no; give one, or --partial",
        ),
        (("--signal", "es={es}", "--signal-type", "average", "--alpha", "0.5"), "a zero of average intensity is meant"),
        (("--signal", "es", "--signal-type", "average"), "'es' is not REGION=FILE"),
        (("--signal", "es={es}", "--signal", "es={es}", "--signal-type", "average"), "region es is given twice"),
        (("--signal", "fr={es}", "--signal-type", "average"), "fr: no energy was drawn in a region of that name"),
        (("--signal", "es={es}#nope", "--signal-type", "average"), "has no column 'nope'"),
        (("--signal", "es=/none.csv", "--signal-type", "average"), "/none.csv: cannot be read"),
        (("--signal", "es={es}", "--signal-type", "average", "--since", "2027-01-01"), "there is no energy to settle"),
        (
            ("--signal", "es={es}", "--signal-type", "average", "--since", "soon"),
            "--since: 'soon' is not an RFC 3339 time",
        ),
        (("--signal", "es={es}", "--signal-type", "average", "--confidence", "2"), "--confidence: 2.0 is not"),
        (("--signal", "es={es}", "--signal-type", "average", "--resamples", "1"), "--resamples: 1 is not"),
        (("--alpha", "2"), "--alpha: 2.0 is not between 0 and 1"),
        (("--profiles", "{folder}"), "holds no RegionProfile"),
    ],
)
def test_wrong_use_says_what_to_do(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    es = series(tmp_path / "es.csv", 110.0)
    given = [argument.format(es=es, folder=tmp_path) for argument in arguments]
    assert says in refused(capsys, "settle", ledger, *given)


def test_the_ledger_by_any_key(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(ran(capsys, "ledger", ledger, "--json", "--by", "arm", "--by", "line"))
    by = {(row["arm"], row["line"], row["signal_type"]): row for row in rows}
    policy = by["policy", "request", "average"]
    assert (policy["requests"], policy["it_kwh"], policy["output_tokens"]) == (960, pytest.approx(96.0), 96_000)
    assert policy["grams_co2e"] == pytest.approx(HOURS * 1.5 * 120)
    assert (policy["hardware_cost"], policy["currency"]) == (pytest.approx(48.0), "USD")
    assert by["policy", "request", None]["it_kwh"] is None  # no counter saw them: unknown, not zero
    assert by[None, "idle", "average"]["requests"] is None
    table = ran(capsys, "ledger", ledger)
    assert "average lifecycle" in table
    assert "48.00 USD" in table
    assert "water" not in table  # nobody states a WUE


def test_a_wrong_key_names_the_right_ones(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'color' is no key; there are hour, day, region" in refused(capsys, "ledger", ledger, "--by", "color")


def test_no_ledger_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds no ledger" in refused(capsys, "ledger", tmp_path)


@pytest.fixture
def apis() -> Iterator[CarbonApis]:
    with carbon_apis(lambda: (START + timedelta(hours=HOURS + 24)).timestamp()) as running:
        yield running


def profiles(folder: Path, apis: CarbonApis, **signal: str) -> Path:
    """Spain by Electricity Maps or WattTime, Norway by a constant."""
    source: dict[str, Any] = {
        "electricityMaps": {"credentialsSecretRef": {"name": "em", "key": "token"}, "baseUrl": f"{apis.url}/em"}
    }
    if signal:
        refs = {f"{part}SecretRef": {"name": "wt", "key": part} for part in ("username", "password")}
        source = {"wattTime": refs | {"baseUrl": f"{apis.url}/wt"}}
    regions = [
        {"metadata": {"name": "es"}, "spec": {"zone": "ES", "source": source, "curtailmentCredit": "0.5"}},
        {"metadata": {"name": "no"}, "spec": {"zone": "NO1", "source": {"static": {"intensityGramsPerKwh": "20"}}}},
    ]
    for region in regions:
        region["spec"] |= {"signal": signal} if signal else {}
    header = {"apiVersion": "heliotrope.io/v1alpha1", "kind": "RegionProfile"}
    (folder / "regions.yaml").write_text("---\n".join(json.dumps(header | region) + "\n" for region in regions))
    for name, values in {"em": {"token": EM_TOKEN}, "wt": {"username": WT_USER, "password": WT_PASSWORD}}.items():
        (folder / "secrets" / name).mkdir(parents=True)
        for key, value in values.items():
            (folder / "secrets" / name / key).write_text(value)
    return folder


def test_sources_of_the_network_are_asked_for_the_ledgers_span(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], apis: CarbonApis
) -> None:
    folder = profiles(tmp_path, apis)
    apis.truth = lambda time: 120.0 if time < (START + timedelta(hours=24)).timestamp() else 140.0

    found = settled(capsys, ledger, "--profiles", folder, "--secrets-folder", folder / "secrets")

    spain = found["regions"]["es"]
    assert spain["settled_grams"] == pytest.approx(HOURS * 3 * 1.5 * 130)
    assert found["total"]["unpriced_joules"] == 0.0
    (asked,) = apis.asked
    assert asked.one("start") == "2026-01-04T23:00:00Z"
    assert asked.one("end") == "2026-01-06T23:05:00Z"


def test_curtailed_hours_are_credited_by_the_median_of_the_whole_span(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], apis: CarbonApis
) -> None:
    folder = profiles(tmp_path, apis, type="marginal", emissionFactor="direct")
    apis.truth = lambda time: 0.0 if time < (START + timedelta(hours=12)).timestamp() else 400.0
    arguments = ("--profiles", folder, "--secrets-folder", folder / "secrets")

    half = settled(capsys, ledger, *arguments)["regions"]["es"]["settled_grams"]
    none = settled(capsys, ledger, *arguments, "--alpha", "0")["regions"]["es"]["settled_grams"]

    assert half == pytest.approx(3 * 1.5 * (12 * 200 + 36 * 400))
    assert none == pytest.approx(3 * 1.5 * 36 * 400)


def test_a_source_that_gives_no_past_says_why(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], apis: CarbonApis
) -> None:
    folder = profiles(tmp_path, apis)
    problem = refused(capsys, "settle", ledger, "--profiles", folder)
    assert "RegionProfile es" in problem
    assert "--secrets-folder" in problem
    apis.em_token = "another"
    problem = refused(capsys, "settle", ledger, "--profiles", folder, "--secrets-folder", folder / "secrets")
    assert "Invalid auth-token" in problem
    assert EM_TOKEN not in problem
