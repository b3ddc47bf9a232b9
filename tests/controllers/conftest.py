"""Properties are about values, not about how busy the machine is: no deadline per example."""

from hypothesis import settings

settings.register_profile("weir", deadline=None)
settings.load_profile("weir")
