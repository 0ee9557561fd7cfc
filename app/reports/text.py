"""Durations and amounts of money as texts, alike in the terminal, on pages and in the report."""


def duration(seconds: float) -> str:
    """Returns a duration in its two largest units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def usd(amount: float | None, unknown: str = "no price") -> str:
    """Returns an amount of dollars: cents, or three significant digits below one dollar.

    Args:
      amount: In dollars.
      unknown: The text where it is None: nothing that was used has a price.
    """
    if amount is None:
        return unknown
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.3g}"
