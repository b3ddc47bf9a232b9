"""Kubernetes workloads, beside a mock of the API server."""
