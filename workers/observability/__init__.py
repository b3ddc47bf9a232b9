"""Export to an OpenTelemetry collector, if one is set: spans of what is done, and metrics."""
