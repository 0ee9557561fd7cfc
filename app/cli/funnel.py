"""The funnel of a run as a table of the terminal: how far its proposals came."""

from app.cli.output import Screen
from app.cli.tables import columns_table
from app.reports.funnel import HEADINGS, MOST_FOLDED, Funnel


def print_funnel(funnel: Funnel, screen: Screen) -> None:
    """Prints how far proposals came by operator and model; nothing where none was begun."""
    if not funnel.lines:
        return
    screen.say("\nhow far the proposals came:\n")
    table = columns_table(*HEADINGS, right=HEADINGS[2:], apart=2)
    for row in funnel.rows():
        table.add_row(*row)
    screen.out.print(table)
    if not funnel.whole:
        screen.say(f"the first {MOST_FOLDED:,} proposals only")
