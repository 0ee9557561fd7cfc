"""Derivative-free optimisers for the `tune` operator, from maintained libraries."""
