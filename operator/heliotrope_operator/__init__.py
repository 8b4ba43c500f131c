"""The operator: Kopf controllers, work queue, actuators and events."""
