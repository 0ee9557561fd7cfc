"""Implementations of the ports, one folder a port; none knows another."""
