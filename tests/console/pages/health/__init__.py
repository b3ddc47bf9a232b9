"""What machines that watch learn: alive, ready, and in numbers."""
