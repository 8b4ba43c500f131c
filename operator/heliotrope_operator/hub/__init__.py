"""Ceilings between clusters: a hub that publishes them, and members that pull, clamp and forget them when stale."""
