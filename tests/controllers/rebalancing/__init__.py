"""Tests of `controllers.rebalancing`."""
