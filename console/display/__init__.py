"""Display of values on all pages: order, wording, and downsampled series."""
