"""Exact and anytime solutions of one window's assignment problem, on plain arrays."""
