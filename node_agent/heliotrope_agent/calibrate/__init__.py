"""Measures the energy profile of an engine on this node's GPUs over clocks, batches and phases."""
