"""The framework of all laws: parameters, observation, decision, guard, and code digest."""
