"""The plant at one moment: read, composed into one document, published each second."""
