"""Retry plans: failed tasks and dead letters, sent again once each, as fast as their destination allows."""
