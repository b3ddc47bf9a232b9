"""Where containers are: plans and how they are proposed, approved, executed, rolled back."""
