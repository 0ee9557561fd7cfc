"""The pages: NiceGUI elements drawn on the server, from the documents that `/api` gives.

A page draws itself once, then changes what it shows in place, once a second at most.  What a model
or a program wrote passes through `text`, and no page loads anything from another host.  NiceGUI has
one application a process, so `add_pages` is called once.
"""

from fastapi import FastAPI
from nicegui import ui

from app.dashboard.control import Control
from app.dashboard.exhibitions import Exhibitions
from app.dashboard.pages import (
    archive,
    compare,
    game,
    games,
    lineage,
    play,
    program,
    run,
    runs,
    system,
    tree,
)
from app.dashboard.pages.sources import Sources
from app.dashboard.reads import RunReader
from app.dashboard.tail import Tails


def add_pages(
    app: FastAPI, reader: RunReader, tails: Tails, control: Control, exhibitions: Exhibitions
) -> None:
    """Adds every page to an application."""
    sources = Sources(reader, tails)
    runs.add(sources)
    run.add(sources, control)
    archive.add(sources)
    program.add(sources)
    lineage.add(sources)
    tree.add(sources)
    games.add(sources)
    game.add(sources)
    play.add(sources, exhibitions)
    compare.add(sources)
    system.add(sources)
    ui.run_with(
        app,
        title="Evoqueue",
        language="en-US",
        # The browser decides between light and dark.
        dark=None,
        tailwind=False,
        show_welcome_message=False,
        reconnect_timeout=10.0,
    )
