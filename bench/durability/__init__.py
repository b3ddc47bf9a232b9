"""What queues lose when hosts lose power, and what each durability costs."""
