"""How long the oldest event of a queue may wait, by what is concluded when it waits longer [s]."""

# The queue's workers are taken to do what they can: what leaves is its capacity (the ladder).
AT_CAPACITY_SECONDS = 5.0
# The queue is behind: lists rank it as high as a BUSY node, and an alert's text names it. The flow map, too
# (static/js/pages/flow_model.js).
BEHIND_SECONDS = 10.0
# The plant's state says so. A worker interval and a pipeline batch are 3 to 5 s: this is three of them.
UNHEALTHY_SECONDS = 15.0
