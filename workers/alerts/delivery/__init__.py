"""Delivery of messages: the selection of receivers, and the channels."""
