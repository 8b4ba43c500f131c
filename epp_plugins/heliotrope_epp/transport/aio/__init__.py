"""The transport on `grpc.aio`: always there, whatever the platform."""
