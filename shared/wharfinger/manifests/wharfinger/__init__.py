"""Our own kinds and annotations."""
