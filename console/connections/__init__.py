"""What the console's processes are connected to: the control server, and what jobs need."""
