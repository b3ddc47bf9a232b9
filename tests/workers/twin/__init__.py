"""The twin: its plant, its loops, and the shipped runs of the lab's scenarios."""
