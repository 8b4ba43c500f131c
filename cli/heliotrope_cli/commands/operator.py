"""`heliotrope operator`: the Kubernetes operator."""
