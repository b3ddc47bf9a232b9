"""What every law is made of: parameters, observation, decision, guard, and the code's digest."""
