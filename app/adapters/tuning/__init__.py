"""Derivative-free optimisers for the `tune` operator, from well-kept libraries."""
