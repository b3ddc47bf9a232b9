"""The pages of loops, and of what is learned about them."""
