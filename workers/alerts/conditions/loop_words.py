"""What a loop is called in a sentence: ladder/telemetry is the remedy ladder of telemetry."""

LAWS = {
    "balance": "load balancing",
    "flow": "flow control",
    "ladder": "remedy ladder",
    "shedding": "load shedding",
    "parallelism_forecast": "forecast parallelism",
    "parallelism_joint": "joint parallelism",
    "parallelism_queueing": "queueing parallelism",
}


def loop_words(name: str) -> str:
    """law/target as `law of target`; a container as its queue on its node."""
    law, *target = name.split("/")
    what = LAWS.get(law, law.replace("_", " "))
    joint = " on " if law == "worker_rate" else " "
    return f"{what} of {joint.join(target)}" if target else what
