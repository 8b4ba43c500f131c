"""`heliotrope calibrate` on an emulated A100 with the stand-in for NVIDIA's driver, and what the engine truly draws.

uv run python bench/calibration.py                       # both phases, 8 and 32 sequences, about two minutes
uv run python bench/calibration.py --time-scale 4 --phase=decode --batches=16
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.nvml.node import FakeNode
from tests.support.nvml.products import A100_40GB

from heliotrope.api.v1alpha1.workloadvariant import Phase
from heliotrope.engine import profiles
from heliotrope_agent.calibrate.profile import PhaseProfile, phase_profiles
from heliotrope_agent.calibrate.record import Record, load

PROFILE = "llama-3.1-8b-a100-40gb"
QUICK = ("--window-seconds=8", "--idle-seconds=4", "--settle-seconds=1", "--repeats=2", "--max-repeats=4")


def main() -> int:
    """Calibrate, then compare; the exit code is the calibration's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-scale", type=float, default=8.0, help="engine seconds per second")
    parser.add_argument("--output", type=Path, default=Path("build/bench/calibration"))
    given, options = parser.parse_known_args()
    engine = profiles.load(PROFILE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        node = FakeNode.create(folder / "gpus", A100_40GB)
        config = {"name": "a", "profile": PROFILE, "time_scale": given.time_scale, "gpu": {"uuids": [node.uuid()]}}
        (folder / "emulator.yaml").write_text(yaml.safe_dump({"engines": [config]}))
        environment = os.environ | node.environment
        emulator = subprocess.Popen(
            [sys.executable, "-m", "heliotrope_sim.emulator", "--config", folder / "emulator.yaml"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert emulator.stdout is not None
            url = json.loads(emulator.stdout.readline())["engines"][0]["url"]
            command = [
                sys.executable,
                "-m",
                "heliotrope_cli.main",
                "calibrate",
                url,
                f"--output={given.output}",
                "--yes",
            ]
            command += [f"--state-folder={folder / 'state'}", f"--time-scale={given.time_scale:g}"]
            command += {each.partition("=")[0]: each for each in (*QUICK, *options)}.values()
            code = subprocess.run(command, env=environment, check=False).returncode
        finally:
            emulator.terminate()
            emulator.wait()
        print(f"SM lock of the GPU afterwards: {node.read().sm_lock_mhz}")
        node.close()
    if code == 0:
        record = load(given.output / "raw.json")
        for each in phase_profiles(record):
            compare(record, each, engine.name)
    return code


def compare(record: Record, found: PhaseProfile, name: str) -> None:
    """Print how far measured J/token and the best clock are from the model's own."""
    engine = profiles.load(name)

    def truth(mhz: int) -> float:
        at = engine.at_clock(mhz)
        if found.phase is Phase.PREFILL:
            step = float(engine.max_num_batched_tokens)
            return float(at.prefill_joules(step, step * record.sweep.prompt_tokens)) / step
        windows = [each for each in record.windows if each.phase is found.phase and each.batch == found.batch]
        context = next(each.measured.context_tokens for each in windows if each.clean)
        assert context is not None
        return float(at.decode_joules(float(found.batch), found.batch * context)) / found.batch

    errors = [100.0 * (point.joules_per_token / truth(point.mhz) - 1.0) for point in found.points]
    inside = sum(abs(error) <= point.uncertainty_percent for error, point in zip(errors, found.points, strict=True))
    best = min(record.sweep.candidates, key=truth)
    print(
        f"{found.phase.value}, batch {found.batch}: best clock found {found.best_mhz}, true {best} MHz; J/token off by "
        f"{min(errors):+.2f} to {max(errors):+.2f} %, {inside} of {len(errors)} points within their uncertainty"
    )


if __name__ == "__main__":
    sys.exit(main())
