"""The protocols that matter: random steps of real callers on real servers, beside a model of a few lines."""
