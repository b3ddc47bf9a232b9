"""What others would have done: rules and laws to compare with."""
