"""Whether an installation is as it should be, and what to do where it is not."""
