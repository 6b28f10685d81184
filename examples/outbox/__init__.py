"""Seven situations in which an effect on the world must happen once, each asserted."""
