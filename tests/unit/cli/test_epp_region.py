"""`heliotrope epp --tier region`: what it refuses before anything is started."""

from pathlib import Path

import pytest

from heliotrope_cli.main import main

GOOD = """apiVersion: heliotrope.io/v1alpha1
kind: RegionTier
regions: [{name: es, stateUrls: ["http://127.0.0.1:1/v1/state"]}]
"""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["epp", "--folder=/nowhere", *arguments])
    assert ended.value.code == 1
    return " ".join(capsys.readouterr().err.split())


def test_the_file_of_regions_is_needed_and_belongs_to_the_tier(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--regions: is needed with --tier region" in refused(capsys, "--tier=region")
    assert "--regions: is for --tier region" in refused(capsys, "--regions=x.yaml")
    assert "--regions: cannot be read" in refused(capsys, "--tier=region", "--regions=/none.yaml")


def test_a_mistake_in_it_is_told_with_file_and_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(GOOD.replace("http:", "tcp:"))
    said = refused(capsys, "--tier=region", f"--regions={path}")
    assert "r.yaml: regions[0].stateUrls[0]: must begin with http://" in said


@pytest.mark.parametrize(
    "flag", ["--home-region=es", "--config-text=x", "--state-dir=/x", "--trainer-url=http://t", "--ledger-dir=/x"]
)
def test_flags_of_endpoint_pickers_are_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str
) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(GOOD)
    said = refused(capsys, "--tier=region", f"--regions={path}", flag)
    assert f"{flag.partition('=')[0]}: has no use with --tier region" in said


@pytest.mark.slow
def test_a_folder_that_is_missing_ends_it_with_its_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(GOOD)
    ports = ("--grpc-port=0", "--health-port=0", "--metrics-port=0", "--host=127.0.0.1", "--no-secure-serving")
    assert "/nowhere" in refused(capsys, "--tier=region", f"--regions={path}", *ports)
