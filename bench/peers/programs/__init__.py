"""What each peer runs, by the Python that has it: `bin/peers` installs them."""
