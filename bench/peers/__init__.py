"""Others' programs beside the pipeline, on the same events in the same run."""
