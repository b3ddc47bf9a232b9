"""The framework of every law: parameters, observation, decision, guard, and the digest of the code."""
