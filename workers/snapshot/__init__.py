"""The plant at one instant: read, composed into one document, published each second."""
