"""Publishing events to queues: the client, the splitter, and producers that ship with Weir."""
