"""The declaration of an application, validated, and the initial values of its controls."""
