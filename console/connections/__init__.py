"""Connections of the console: to the control server and what jobs need, and from its clients."""
