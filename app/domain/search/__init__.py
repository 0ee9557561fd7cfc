"""The search itself: archive, cohorts, strategies and recipes, budgets and back-pressure."""
