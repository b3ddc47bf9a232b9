"""Events and how they travel: blocks in Arrow, and what is read into them."""
