"""Tests of `workers.alerts.delivery`."""
