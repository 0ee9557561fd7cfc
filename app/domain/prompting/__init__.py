"""Prompts: rules, templates and the parts of a prompt, within a budget of tokens."""
