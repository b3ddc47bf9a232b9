"""Count the events that queues lose when hosts lose power, and measure the cost of each durability."""
