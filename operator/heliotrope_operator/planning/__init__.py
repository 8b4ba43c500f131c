"""Plans replicas: what is asked of each pool, what its variants carry, and a number for each."""
