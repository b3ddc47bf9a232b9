"""The first tier: each event by itself, read, ruled and written as results."""
