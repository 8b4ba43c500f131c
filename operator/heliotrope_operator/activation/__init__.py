"""Rests idle engines and wakes them: what `heliotrope.scale.activation` plans, carried out and taken back."""
