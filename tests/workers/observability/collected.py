"""A collector of the test: what would be sent is kept, in the order in which it ended."""

import pytest

from common import environment as variables
from workers.observability import spans
from workers.observability.collector import Collector
from workers.observability.unsent import Unsent


class Collected:
    """The spans that ended."""

    def __init__(self) -> None:
        self._spans = []
        self._unsent = Unsent("spans", self._take)
        self.collector = Collector(self._unsent)

    def _take(self, batch) -> bool:
        self._spans.extend(batch)
        return True

    def spans(self):
        """All of them; the collector is at its end with this."""
        self._unsent.end(10.0)
        return self._spans

    def named(self, name):
        (found,) = [each for each in self.spans() if each.name == name]
        return found

    @classmethod
    def instead_of_a_real_one(cls, monkeypatch: pytest.MonkeyPatch) -> "Collected":
        kept = cls()
        monkeypatch.setenv(variables.OTLP_ENDPOINT.name, "http://127.0.0.1:4318")
        monkeypatch.setattr(spans, "_get_collector", lambda pid: kept.collector)
        return kept
