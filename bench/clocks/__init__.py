"""Simulated days of prefill and decode engines at clocks that are fixed, shared by both phases, or chosen per phase."""
