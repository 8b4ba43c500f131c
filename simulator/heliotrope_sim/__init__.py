"""Emulated engines, workloads, the demo and (later) the simulator, over the same decisions as production."""
