"""The console's pages, each as people see it."""
