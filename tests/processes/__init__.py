"""Real worker processes for tests, forked from one warm parent so that each is there in milliseconds."""
