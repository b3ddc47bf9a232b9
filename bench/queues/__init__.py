"""The queue layer: the splitter, and segments on real servers."""
