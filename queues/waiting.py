"""From how long a wait on a law concludes something [s]. Whether a queue is well is its state's to say
(`workers.snapshot.states`).
"""

# The queue's workers are taken to do what they can: what leaves is its capacity (the ladder).
AT_CAPACITY_SECONDS = 5.0
