"""User actions in the lab: experiments, traces, and applied results."""
