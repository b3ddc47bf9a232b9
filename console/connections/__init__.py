"""Connections of the console: to the control server, the supervisor, and job resources; from clients."""
