"""Tables of the terminal: columns without lines between them."""

from collections.abc import Collection, Iterable

from rich.table import Table


def columns_table(*columns: str, right: Collection[str] = (), apart: int = 3) -> Table:
    """Returns a table without rows.

    Args:
      columns: Their headings.
      right: Those whose cells are aligned at their ends.
      apart: Blanks between two columns.
    """
    table = Table(box=None, padding=(0, apart, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


def labelled_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Returns a table of two columns without headings: labels and texts."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    return table
