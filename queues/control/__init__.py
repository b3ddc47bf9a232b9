"""The control server: its address, and connections that reconnect after a failover."""
