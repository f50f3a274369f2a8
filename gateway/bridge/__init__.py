"""Handshake era and stateless era, each in the words of the other; cold."""
