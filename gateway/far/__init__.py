"""Links that live on another replica: who owns which, and the way to them over the store."""
