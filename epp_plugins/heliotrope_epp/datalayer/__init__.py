"""What the picker knows of the world: endpoints, resources, engine metrics, its own requests in flight."""
