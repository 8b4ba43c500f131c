"""The committed field reference is what the types give."""

import re
from pathlib import Path

import yaml

from heliotrope.api import crd, reference
from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import KINDS

DOCS = Path(__file__).parents[4] / "docs"
COMMITTED = DOCS / "resources-reference.md"


def test_the_committed_reference_is_up_to_date() -> None:
    assert COMMITTED.read_text() == reference.render(), (
        "run: uv run python -m heliotrope.api.reference > docs/resources-reference.md"
    )


def test_every_field_and_every_rule_has_a_line() -> None:
    text = reference.render()
    for kind in KINDS.values():
        for path, schema in crd.nodes(crd.schema(kind)):
            field = ".".join(path[1:]).replace(".[]", "[]")
            if len(path) > 1 and path[-1] not in {"[]", "{}"}:
                assert f"`{field}`" in text, path
            if schema["type"] == "object":
                assert all(rule["message"] in text for rule in schema.get("x-kubernetes-validations", ()))


def test_the_documents_in_the_guide_are_valid() -> None:
    blocks = re.findall(r"```yaml\n(apiVersion.*?)```", (DOCS / "resources.md").read_text(), re.DOTALL)

    kinds = {type(parse(yaml.safe_load(block))).__name__ for block in blocks}

    assert kinds == {"RegionProfile", "WorkloadVariant", "CarbonPolicy"}
