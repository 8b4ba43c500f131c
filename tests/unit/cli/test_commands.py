import io
import json
import logging
import sys
from pathlib import Path

import pytest
from tests.support.logs import logging_kept

import heliotrope
from heliotrope_cli import logs
from heliotrope_cli.commands.crds import DriftError, crds
from heliotrope_cli.commands.extras import ExtraMissingError, needs
from heliotrope_cli.main import build_app, main


def test_help_lists_only_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_app()(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    commands = {line.split()[1] for line in text.splitlines() if line.startswith("│") and line[2:3].islower()}
    assert commands == {
        "agent",
        "calibrate",
        "crds",
        "demo",
        "epp",
        "evaluate",
        "explain",
        "forecast",
        "hub",
        "ledger",
        "operator",
        "reproduce",
        "restore",
        "savings",
        "settle",
        "simulate",
        "status",
        "train",
        "trainer",
        "version",
    }


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["version"])
    assert capsys.readouterr().out.strip() == heliotrope.__version__


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["agent", "--node=n", "--watchdog", "--restore"], "not both"),
        (["agent", "--node=n", "--force"], "--force: is for --restore"),
        (["agent", "--node=n", "--folder=/nowhere"], "--folder: /nowhere is not a folder"),
        (["agent", "--node="], "--node: give the name of this node"),
        (["agent", "--node=n", "--watchdog-seconds=2"], "--watchdog-seconds: must be at least three times"),
        (["epp"], "give --folder, or --pool-name"),
        (["epp", "--folder=x", "--pool-name=y"], "give --folder, or --pool-name"),
        (["epp", "--pool-name=y", "--secrets-folder=/tmp"], "--secrets-folder: is for --folder"),
        (["epp", "--folder=x", "--secrets-folder=/nowhere"], "--secrets-folder: /nowhere is not a folder"),
        (["epp", "--folder=/nowhere", "--config-file=/none.yaml"], "--config-file: cannot be read"),
        (["epp", "--folder=/nowhere", "--config-text=plugins: 5"], "plugins"),
        (["epp", "--folder=x", "--trainer-url=trainer:8000"], "--trainer-url: must begin with http://"),
        (["epp", "--folder=x", "--no-learn", "--trainer-url=http://t"], "has no use with --no-learn"),
        (["epp", "--folder=x", "--trace-ratio=2"], "--trace-ratio: must be in [0, 1]"),
        (["epp", "--folder=x", "--otlp-endpoint=collector:4317"], "--otlp-endpoint: must begin with http://"),
        (["trainer", "--host=256.0.0.1"], "cannot start"),
        (["calibrate", "http://e", "--batches=8,b"], "--batches: '8,b' is not a list of whole numbers"),
        (["calibrate", "http://e", "--time-scale=0"], "--time-scale: 0 is not above 0"),
        (["calibrate", "http://e", "--variant-file=/none"], "--variant-file: /none cannot be read"),
        (["calibrate", "http://e", "--variant-file=v", "--variant=x"], "--variant-file names the variant already"),
        (["calibrate", "http://e", "--api-key-file=/none"], "--api-key-file: /none cannot be read"),
        (["operator", "--namespace=a", "--all-namespaces"], "not both"),
        (["operator", "--hub-url=http://hub", "--hub-member=a"], "--hub-url: must be an address such as https://"),
        (["operator", "--hub-url=https://hub"], "--hub-member: is needed"),
        (["operator", "--prometheus-url=prometheus:9090"], "--prometheus-url: is not of the form https://host:port"),
        (["operator", "--prometheus-secret=p"], "--prometheus-secret: is of use with --prometheus-url only"),
        (["hub", "--plan=/none", "--tls-cert=/none", "--tls-key=/none"], "--plan: cannot read /none"),
        (["crds", "--write", "--check"], "not both"),
        (["demo", "--load=7"], "load: 7.0 is not between"),
        (["reproduce", "cold-fusion"], "'cold-fusion' is unknown; known: context-is-not-free"),
    ],
)
def test_wrong_use_is_one_sentence_and_a_failure(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 1
    text = " ".join(capsys.readouterr().err.split())
    assert says in text
    assert "Traceback" not in text


def test_an_error_is_one_line_however_long_so_that_its_paths_stay_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / ("x" * 120) / "policies.yaml"
    with pytest.raises(SystemExit):
        main(["simulate", str(path)])
    assert str(path) in capsys.readouterr().err


@pytest.mark.slow
def test_crds_are_written_checked_and_cleaned_up(tmp_path: Path) -> None:
    folder = tmp_path / "crds"
    with pytest.raises(DriftError, match="heliotrope crds --write"):
        crds(check=True, folders=(folder,))
    crds(write=True, folders=(folder,))
    crds(check=True, folders=(folder,))
    names = {path.name for path in folder.iterdir()}
    assert len(names) == 4
    (folder / "old.yaml").write_text("")
    with pytest.raises(DriftError, match=r"old\.yaml"):
        crds(check=True, folders=(folder,))
    crds(write=True, folders=(folder,))
    assert {path.name for path in folder.iterdir()} == names


def test_a_missing_extra_says_how_to_install_it() -> None:
    with pytest.raises(ExtraMissingError, match=r"pip install 'heliotrope\[epp\]'"), needs("epp"):
        import a_package_that_is_not_there  # noqa: F401


def test_logs_are_json_with_their_fields_and_a_traceback() -> None:
    stream = io.StringIO()
    logs.configure("info", as_json=True, stream=stream)
    log = logging.getLogger("heliotrope_epp.test")
    log.info("routed", extra={"fields": {"endpoint": "a"}})
    log.debug("not shown")
    logging.getLogger("somebody.else").info("not shown")
    try:
        raise ValueError("boom")
    except ValueError:
        log.exception("failed")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["message"] for line in lines] == ["routed", "failed"]
    assert lines[0]["endpoint"] == "a"
    assert lines[0]["level"] == "info"
    assert "ValueError: boom" in lines[1]["traceback"]


def test_what_a_command_does_to_logging_does_not_outlast_its_test() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogger("heliotrope_epp").level
    with logging_kept():
        logs.configure("critical", as_json=True, stream=io.StringIO())
        assert root.handlers != before[0]
    assert (root.handlers, root.level, logging.getLogger("heliotrope_epp").level) == before


def test_text_logs_are_for_people() -> None:
    record = logging.LogRecord("heliotrope_epp", logging.WARNING, "f", 1, "slow %s", ("engine",), None)
    record.fields = {"seconds": 3}
    assert logs.TextFormatter().format(record).endswith("WARNING slow engine seconds=3")
    try:
        raise ValueError("boom")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert "ValueError: boom" in logs.TextFormatter().format(record)


def test_reproduce_without_a_name_lists_the_studies(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reproduce"])
    assert not ended.value.code
    assert capsys.readouterr().out.startswith("context-is-not-free  Zhang et al.")
