"""Documents that processes give each other: what is written is read, by newer and older versions too."""
