"""Retry plans: failed tasks and dead letters sent again, once each, at a pace that their destination can take."""
