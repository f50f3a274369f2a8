"""What plugins see: a base class with a life cycle, and the events."""
