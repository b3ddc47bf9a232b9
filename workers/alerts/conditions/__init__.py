"""What an alert rule can watch, and the evidence it reads."""
