"""The task history: every task of attached apps, searched by words, and failures in groups."""
