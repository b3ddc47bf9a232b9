"""Delivery of alert messages: the selection of receivers, and the channels to them."""
