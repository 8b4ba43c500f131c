"""What it costs a decision to choose between one endpoint and prefill/decode pairs: CPU microseconds.

    uv run python bench/phases.py [--endpoints 64] [--decisions 1000] [--runs 1]

The pool of `bench/decide.py`, whose endpoints prefill and decode, on one host as far as links are concerned, so that
nearly every pair is worth a look. The same decisions are timed with and without pairs; estimates are analytic. Of
several runs the one with the lowest median is reported.
"""

import argparse
import json
from random import Random
from typing import Any

import numpy as np
from decide import POLICY, REGIONS, Carbon, Pool, measure, region
from machine import describe

from heliotrope_epp.config.loader import load as load_config
from heliotrope_epp.datalayer.endpoint import Endpoint
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.pipeline import Pipeline

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: prefill-filter
- type: decode-filter
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: always-disagg-pd-decider
- type: disagg-profile-handler
  parameters: %s
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}]
- name: decode
  plugins:
  - pluginRef: decode-filter
  - pluginRef: queue-scorer
  - pluginRef: kv-cache-utilization-scorer
  - pluginRef: prefix-cache-scorer
"""
WITH_PAIRS = "{deciders: {prefill: always-disagg-pd-decider}}"
LABELS = {"llm-d.ai/role": "prefill-decode", "kubernetes.io/hostname": "node"}


class Split(Pool):
    """Endpoints of both roles; counts the pairs of its decisions."""

    def __init__(self, endpoints: int, parameters: str) -> None:
        super().__init__(endpoints, 1, None)
        carbon = Carbon(POLICY, {name: region(name, value) for name, value in REGIONS.items()})
        context = PluginContext(carbon=carbon, random=Random(1), instance="bench")
        self.pipeline = Pipeline(load_config(CONFIG % parameters, builtin_registry(), context).scheduling, context)
        self.pairs: list[int] = []
        self.split = 0

    def _state(self, i: int) -> EndpointState:
        state = super()._state(i)
        of = state.endpoint
        return EndpointState(Endpoint(of.name, of.namespace, of.address, of.port, LABELS), state.traits)

    def follow(self, request: Any, result: Any) -> None:
        """Count as well."""
        candidates = result.decision.candidates
        self.pairs.append(len(candidates) - candidates.aggregated_count)
        self.split += result.pick.prefill is not None
        super().follow(request, result)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoints", type=int, default=64)
    parser.add_argument("--decisions", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=1)
    arguments = parser.parse_args()
    report: dict[str, Any] = {"machine": describe(), "endpoints": arguments.endpoints}
    for _ in range(arguments.runs):
        for name, parameters in (("alone", "{}"), ("with_pairs", WITH_PAIRS)):
            pool = Split(arguments.endpoints, parameters)
            microseconds = measure(pool, arguments.decisions)
            if name not in report or microseconds["p50"] < report[name]["cpu_us"]["p50"]:
                report[name] = {"cpu_us": microseconds, "mean_pairs": float(np.mean(pool.pairs)), "split": pool.split}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
