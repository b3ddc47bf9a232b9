"""What is left out when there is too much, and the ladder of remedies that comes before."""
