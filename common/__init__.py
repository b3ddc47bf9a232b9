"""General code that all packages share: errors, declared values, external documents, files, and logs."""

# First of all, because it limits the threads of NumPy, which must not have been imported before.
from common import environment as environment
