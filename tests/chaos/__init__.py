"""Chaos: real processes under a seeded schedule of faults, and a judge of what came of it."""
