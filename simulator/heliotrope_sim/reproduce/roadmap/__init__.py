"""The experimental roadmap of sustainable-inference-control-plane (§8, §9), run on simulated engines."""
