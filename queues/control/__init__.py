"""The control server: its address, and connections that find it again after a failover."""
