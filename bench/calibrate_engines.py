"""Calibrates the shipped engine profiles on the measurements in data/, and says how good they are.

uv run python bench/calibrate_engines.py            print the report
uv run python bench/calibrate_engines.py --write    also write core/heliotrope/engine/profiles/*.json
uv run python bench/calibrate_engines.py --check    exit 1 if the shipped profiles differ from what would be written
"""

import argparse
import json
import math
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from engine_calibration import recipes, report

PROFILES = Path(str(resources.files("heliotrope.engine.profiles")))
MODEL_TOLERANCE = 1e-3
"""Relative: another LAPACK rounds otherwise."""
FIT_TOLERANCE = 2e-2


def drift(shipped: Any, computed: Any, tolerance: float, path: str) -> list[str]:
    """Where two profile files differ by more than the tolerance."""
    if isinstance(shipped, dict) and isinstance(computed, dict):
        missing = [f"{path}.{key}: only in one of them" for key in sorted(shipped.keys() ^ computed.keys())]
        return missing + [
            line
            for key in shipped.keys() & computed.keys()
            for line in drift(shipped[key], computed[key], tolerance, f"{path}.{key}")
        ]
    if isinstance(shipped, list) and isinstance(computed, list) and len(shipped) == len(computed):
        pairs = enumerate(zip(shipped, computed, strict=True))
        return [line for index, (a, b) in pairs for line in drift(a, b, tolerance, f"{path}[{index}]")]
    if isinstance(shipped, float) and isinstance(computed, float):
        same = math.isclose(shipped, computed, rel_tol=tolerance, abs_tol=1e-15)
    else:
        same = shipped == computed
    return [] if same else [f"{path}: shipped {shipped!r}, computed {computed!r}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the profiles")
    parser.add_argument("--check", action="store_true", help="compare with the shipped profiles, exit 1 on drift")
    arguments = parser.parse_args()

    calibrated = recipes.calibrate_all()
    files = {item.profile.name: recipes.to_file(item) for item in calibrated}
    if arguments.write:
        for name, content in files.items():
            (PROFILES / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if arguments.check:
        shipped = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in PROFILES.glob("*.json")}
        lines = [f"{name}: only in one of them" for name in sorted(shipped.keys() ^ files.keys())]
        for name in sorted(shipped.keys() & files.keys()):
            lines += drift(shipped[name]["model"], files[name]["model"], MODEL_TOLERANCE, f"{name}.model")
            lines += drift(shipped[name]["fit"], files[name]["fit"], FIT_TOLERANCE, f"{name}.fit")
        print("\n".join(lines) or "the shipped profiles are what this script writes")
        return 1 if lines else 0
    print(report.everything(calibrated))
    return 0


if __name__ == "__main__":
    sys.exit(main())
