"""Building blocks of loop kinds: their declaration, and common observations and actions."""
