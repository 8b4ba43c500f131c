"""Clocks, watts and demand response: what is chosen for each variant, and the NodePowers that tell the node agents."""
