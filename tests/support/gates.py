"""Session gates that were trained, on switches that all came out alike."""

from dataclasses import replace

import numpy as np

from heliotrope.cache.gate import Gate
from heliotrope.cache.gate_features import FEATURES, GateFeatures
from heliotrope.cache.gate_training import Switch, train_gate


def trained_gate(advantage: float, *, threshold: float = 0.05) -> Gate:
    """A gate that expects this advantage of staying at every switch."""
    rows = np.random.default_rng(0).random((200, len(FEATURES))).tolist()
    gate = train_gate([Switch(GateFeatures(tuple(row)), 2.0 + 4.0 * advantage, 2.0, 4.0) for row in rows], 1)
    return replace(gate, threshold=threshold, validated_on=9)
