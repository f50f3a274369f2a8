"""Who asks, and for what."""
