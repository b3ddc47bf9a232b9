"""What control laws decide beside their peers, and what a tick of a loop costs."""
