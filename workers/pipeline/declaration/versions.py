"""The active version of each declared application, and the copy of it on the control server."""

import redis

from workers.models import PipelineVersion
from workers.pipeline.declaration.declared import Declarations, DeclarationText


def reconcile(control: redis.Redis) -> list[str]:
    """Write to the control server every active version that it lacks, and return the applications."""
    declarations = Declarations(control)
    wanted, told = declarations.load_wanted(), []
    for version in PipelineVersion.objects.filter(active=True):
        declared = DeclarationText(version.application, version.number, version.text)
        if wanted.get(version.application) != declared:
            declarations.want(declared)
            told.append(version.application)
    return told
