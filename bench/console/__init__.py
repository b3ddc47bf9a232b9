"""The console: its pages, its sockets and its kept past, on a plant of 200 nodes."""
