"""What each kind of loop observes, which loops there are of it, and how often they tick."""
