"""What an application says of itself."""
