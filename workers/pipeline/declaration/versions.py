"""The active version of each declared application, and the control server's knowledge of it."""

import redis

from workers.models import PipelineVersion
from workers.pipeline.declaration.declared import Declarations, Declared


def reconcile(control: redis.Redis) -> list[str]:
    """Reports to the control server of every active version that it does not know; of which."""
    declarations = Declarations(control)
    wanted, told = declarations.load_wanted(), []
    for version in PipelineVersion.objects.filter(active=True):
        declared = Declared(version.application, version.number, version.text)
        if wanted.get(version.application) != declared:
            declarations.want(declared)
            told.append(version.application)
    return told
