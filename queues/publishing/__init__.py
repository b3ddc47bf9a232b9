"""Publishing of events to queues: the client, the splitter, and the producers that Weir includes."""
