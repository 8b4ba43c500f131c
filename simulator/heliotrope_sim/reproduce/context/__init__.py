"""The experiment of context-is-not-free: sessions whose turns are routed over models, GPU types and regions."""
