"""The plant's state at one instant: read, composed into one document, published each second."""
