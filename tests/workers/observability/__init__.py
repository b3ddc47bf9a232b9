"""What is sent to a collector, and that nothing waits for one."""
