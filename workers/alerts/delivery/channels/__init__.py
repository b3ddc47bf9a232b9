"""Channels of delivery: one module for each channel."""
