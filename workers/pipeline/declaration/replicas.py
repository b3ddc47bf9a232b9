"""The names of an application's replicas, and the processes that run them.

The main process dispatches, combines, and runs every replica that has no process of its own.
"""

from dataclasses import dataclass


def list_replica_names(count: int) -> tuple[str, ...]:
    """Return the names of an application's replicas."""
    return tuple(f"iap{number + 1}" for number in range(count))


def get_process_name(replica: str) -> str:
    """Return the supervisor's name for the process of a replica."""
    return f"pipeline-{replica}"


@dataclass(frozen=True)
class ProcessRole:
    """The role of a process for all applications.

    replica: the only replica that the process runs; None: it is the main process. separate: the replicas that have
    processes of their own.
    """

    replica: str | None = None
    separate: frozenset[str] = frozenset()

    @classmethod
    def build_main(cls, replica_processes: int) -> "ProcessRole":
        """Return the role of the main process if the first `replica_processes` replicas have processes of their own."""
        return cls(separate=frozenset(list_replica_names(replica_processes)))

    @property
    def is_main(self) -> bool:
        return self.replica is None

    def runs(self, replica: str) -> bool:
        return replica == self.replica if self.replica else replica not in self.separate


MAIN = ProcessRole()
