"""What people do in the lab: experiments, traces, and results put to use."""
