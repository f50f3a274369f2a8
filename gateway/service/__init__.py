"""The task service of this replica: the calls it runs, and what is asked of them."""
