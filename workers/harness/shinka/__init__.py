"""Stands in for the package of this name, so that evaluators which import it can be loaded."""
