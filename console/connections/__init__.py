"""Connections to the control server, the supervisor, and job resources, and connections of clients."""
