"""General code that all packages share: errors, declared values, external documents, files, and logs."""

# This import comes first, because it limits the threads of NumPy and must run before NumPy is imported.
from common import environment as environment
