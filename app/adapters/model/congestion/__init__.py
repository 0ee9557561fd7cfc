"""Congestion control: when an endpoint may be asked, and for how long an answer is waited for."""
