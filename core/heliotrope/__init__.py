"""Heliotrope: decisions that serve LLM requests with the least energy and carbon their promises allow."""

__version__ = "0.1.0"
