"""Several hosts: namespaces on a network that can be cut, slow and lossy, each with a clock of its own."""
