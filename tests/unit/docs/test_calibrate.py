"""docs/calibrate.md and examples/calibrate against what the command does."""

import inspect
import re
from pathlib import Path

import yaml

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope_agent.calibrate.window import Mark
from heliotrope_agent.settings import STATE_FOLDER
from heliotrope_cli.main import build_app

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "calibrate.md").read_text(encoding="utf-8")


def options() -> set[str]:
    from heliotrope_cli.commands.calibrate import calibrate

    parsed = build_app()["calibrate"].assemble_argument_collection()
    assert inspect.getdoc(calibrate)
    return {name for argument in parsed for name in argument.names if name.startswith("--")}


def test_every_option_of_the_page_exists() -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    others = {
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--type",
        "--patch-file",
        "--restore",
    }
    assert named - others <= options()


def test_every_mark_is_explained() -> None:
    for mark in Mark:
        assert f"`{mark.value}`" in PAGE


def test_the_example_is_a_variant_and_its_pod_uses_the_agents_folder() -> None:
    variant = parse(yaml.safe_load((ROOT / "examples/calibrate/variant.yaml").read_text(encoding="utf-8")))
    assert isinstance(variant, WorkloadVariant)
    pod = yaml.safe_load((ROOT / "examples/calibrate/pod.yaml").read_text(encoding="utf-8"))
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert volumes["state"]["hostPath"]["path"] == str(STATE_FOLDER)
    mounts = {each["name"]: each["mountPath"] for each in pod["spec"]["containers"][1]["volumeMounts"]}
    assert mounts["state"] == str(STATE_FOLDER)
    assert pod["spec"]["hostPID"] is True
    assert variant.metadata.name in (ROOT / "examples/calibrate/pod.yaml").read_text(encoding="utf-8")
