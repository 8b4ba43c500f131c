"""The Helm chart, rendered by the real helm."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "heliotrope"
KUBE_VERSION = "1.34.0"
RENDER_SECONDS = 30
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The CRDs take PyYAML's own reader seconds."""

Values = Mapping[str, Any]
Object = dict[str, Any]


class HelmError(AssertionError):
    """helm refused; the message is what it printed."""


@dataclass(frozen=True)
class Chart:
    """Renders the chart without a cluster."""

    helm: Path

    def run(self, *arguments: str, values: Values | None = None) -> str:
        """Run a helm command on the chart with values, and return what it printed.

        Raises:
            HelmError: if it fails.
        """
        command = [str(self.helm), *arguments, "--values", "-"]
        text = json.dumps(dict(values or {}))  # JSON leaves no room for how YAML versions read a scalar
        result = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=RENDER_SECONDS, check=False
        )
        if result.returncode != 0:
            raise HelmError(result.stdout + result.stderr)
        return result.stdout

    def template(
        self,
        values: Values | None = None,
        *,
        release: str = "heliotrope",
        namespace: str = "heliotrope-system",
        api_versions: Sequence[str] = (),
    ) -> str:
        """The manifests as text.

        Raises:
            HelmError: if the schema rejects the values or a template fails.
        """
        flags = ["--namespace", namespace, "--kube-version", KUBE_VERSION]
        flags += [flag for version in api_versions for flag in ("--api-versions", version)]
        return self.run("template", release, str(CHART), *flags, values=values)

    def objects(self, values: Values | None = None, **options: Any) -> list[Object]:
        """The manifests as objects; options are those of `template`."""
        return [each for each in yaml.load_all(self.template(values, **options), Loader=LOADER) if each]


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    """Those of some kinds."""
    return [each for each in objects if each["kind"] in kinds]


def named(objects: Sequence[Object], kind: str, name: str) -> Object:
    """The one object of a kind and name."""
    (found,) = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found
