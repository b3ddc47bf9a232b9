"""The declaration of an application: validation, and the initial values of its controls."""
