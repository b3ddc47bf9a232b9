"""The shop's producers: a few events each a second, and what a scenario makes of one of them."""

from queues.publishing.streams import EventStream, StreamPublisher

USUAL_PER_SECOND = 30.0  # of a producer to a queue
CLICKS_PER_SECOND = 1_200.0
TYPES = {"orders": "order", "mail": "letter", "video": "clip", "clicks": "click"}


class Producers(StreamPublisher):
    """They publish until closed."""

    def __init__(self, control_url: str, queues: tuple[str, ...], clicks: str) -> None:
        first, second, third = queues
        rates = [
            *((name, queue, USUAL_PER_SECOND) for name, queue in (("web", first), ("web", second), ("app", first))),
            *((name, queue, USUAL_PER_SECOND) for name, queue in (("app", third), ("batch", second), ("batch", third))),
            ("page", clicks, CLICKS_PER_SECOND),
        ]
        super().__init__(control_url, [EventStream(name, queue, TYPES[queue], rate) for name, queue, rate in rates])
        self.__enter__()

    def list_producers(self, queue: str) -> list[EventStream]:
        """Who publishes to it."""
        return [stream for stream in self.streams if stream.queue == queue]

    def calm(self) -> None:
        """All as ever."""
        for stream in self.streams:
            stream.calm()
