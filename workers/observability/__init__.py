"""Export of spans and metrics to an OpenTelemetry collector, if one is configured."""
