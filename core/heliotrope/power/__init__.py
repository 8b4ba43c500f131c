"""Clocks and watts: per phase, within a budget, in answer to the grid: pure functions."""
