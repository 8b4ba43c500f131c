"""Whose joules: energy counters of engines, shared out over the requests that were in flight."""
