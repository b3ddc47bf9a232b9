"""A beat on the full second of the wall clock, which no jump of that clock can delay or hasten."""

MIN_GAP_SECONDS = 0.5


def wait_seconds(wall_seconds: float, since_last_seconds: float, offset_seconds: float = 0.0) -> float:
    """Return how long to wait until the next full second + `offset_seconds`.

    Only the fraction of the wall clock is used, so no jump makes the wait longer than 1.5 s. `since_last_seconds`
    (monotonic) prevents two beats in one second if the clock is set back by a little.
    """
    wait = (offset_seconds - wall_seconds) % 1.0
    return wait if since_last_seconds + wait >= MIN_GAP_SECONDS else wait + 1.0
