"""The instances of this problem: FunSearch's Weibull class, drawn; never the published files."""

from instances import weibull

TRAINING = weibull("training", 2024, count=5, size=1000)

VALIDATION = {
    "Weibull 1k": weibull("validation Weibull 1k", 2025, count=5, size=1000),
    "Weibull 2k": weibull("validation Weibull 2k", 2025, count=2, size=2000),
}
"""Name of a set to its instances; the published ones have 5,000 items and more."""
