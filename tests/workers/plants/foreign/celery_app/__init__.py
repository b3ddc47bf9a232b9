"""Tests of `workers.plants.foreign.celery_app`."""
