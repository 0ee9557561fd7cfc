"""The funnel of a run as a table of the terminal: how far its proposals came."""

from rich.table import Table

from app.cli.output import Screen
from app.reports.funnel import HEADINGS, MOST_FOLDED, Funnel


def print_funnel(funnel: "Funnel", screen: "Screen") -> None:
    """Prints how far proposals came by operator and model; nothing where none was begun."""
    if not funnel.lines:
        return
    screen.say("\nhow far the proposals came:\n")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for n, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if n < len(HEADINGS[:2]) else "right")
    for row in funnel.rows():
        table.add_row(*row)
    screen.out.print(table)
    if not funnel.whole:
        screen.say(f"the first {MOST_FOLDED:,} proposals only")
