"""Task services on one store under virtual time: thousands of steps a second, their order from a seed."""
