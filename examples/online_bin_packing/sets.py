"""The instances of this problem: OR-Library's uniform class, drawn; never the published files."""

from instances import uniform

TRAINING = uniform("training", 2024, count=10, size=500)

VALIDATION = {
    "OR1": uniform("validation OR1", 2025, count=5, size=120),
    "OR2": uniform("validation OR2", 2025, count=5, size=250),
    "OR3": uniform("validation OR3", 2025, count=5, size=500),
    "OR4": uniform("validation OR4", 2025, count=5, size=1000),
}
"""Name of a set to its instances: a quarter of those of OR-Library, of the same lengths."""
