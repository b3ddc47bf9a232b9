"""What is sent to an OpenTelemetry collector, where one is set: spans of what is done, and metrics."""
