"""The node agent: puts a NodePower's clocks and watts into effect on one node's GPUs, reads energy, always restores."""
