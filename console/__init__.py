"""Who watches and steers: the web console, its API and its commands."""
