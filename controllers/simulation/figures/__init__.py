"""Tables and figures of the papers, as runs of scenarios that are compared with the papers."""
