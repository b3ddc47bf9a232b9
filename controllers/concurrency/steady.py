"""The steady state as both explorations declare it in their states."""

from common.parameter import Parameter

MAX_STEPS = 1e15
MAX_PER_SECOND = 1e12
STEADY = (
    Parameter("steady_per_second", "per second", "Throughput at the start.", None, 0, MAX_PER_SECOND, required=True),
    Parameter("steady_seconds", "s", "Time in the steady state.", None, 0, 1e15, required=True),
    Parameter("doubted", "flag", "True: the last check measured another throughput.", kind="flag", required=True),
    Parameter("steps", "steps", "Steps of all explorations.", None, 0, MAX_STEPS, "integer", required=True),
)
