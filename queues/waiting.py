"""When laws draw conclusions from a wait [s].

The state of a queue says whether it is healthy (`workers.snapshot.evaluate`).
"""

# From here on, the queue's workers are assumed to do what they can: what leaves is its capacity (the ladder).
AT_CAPACITY_SECONDS = 5.0
