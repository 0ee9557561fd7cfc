"""The form of a section of a prompt, and the items that one prompt shows of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar, cast

from app.domain.operator import Brief, Draft, ProgramRecord
from app.domain.prompting.filling import Filler, Template

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Shown:
    """The items of a brief that one prompt shows.

    Attributes:
      items: The items of each section, by its name; `Section.items` returns them with their type.
      left_out: The items that have been cut, in the order of cutting.
    """

    parent: ProgramRecord
    items: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


class Cut(NamedTuple):
    """The item that is cut first: its position, and its name among the items of its section."""

    position: int
    name: str


def cut_last(items: Sequence[object]) -> Cut:
    """Returns the last item, named by its number."""
    return Cut(len(items) - 1, str(len(items)))


@dataclass(frozen=True, slots=True)
class Section(Generic[Item]):
    """A part of a prompt that lists items, and loses them where the budget of tokens is short.

    Attributes:
      name: Its placeholder in the templates of prompts.
      noun: The kind of its items, by which a prompt counts those that it lacks.
      rank: While a section of a lower rank has items, this one loses none.
      read: Returns the items of a draft's prompt of any length, the most useful first.
      write: Returns the text of items, of which there is one at least, beside the parent.
      templates: The templates that `write` fills.
      heading: Stands above the text; "" where a template has the heading.
      cut: Returns the item that is lost first.
    """

    name: str
    noun: str
    rank: int
    read: Callable[[Brief, Draft], Sequence[Item]]
    write: Callable[[Filler, Sequence[Item], ProgramRecord], str]
    templates: tuple[Template, ...] = ()
    heading: str = ""
    cut: Callable[[Sequence[Item]], Cut] = cut_last

    def items(self, shown: Shown) -> tuple[Item, ...]:
        """Returns the items that a prompt shows."""
        # `put` alone stores items under the name.
        return cast("tuple[Item, ...]", shown.items.get(self.name, ()))

    def put(self, shown: Shown, items: Sequence[Item]) -> Shown:
        """Returns the shown items with these in this section."""
        return replace(shown, items={**shown.items, self.name: tuple(items)})

    def fill(self, shown: Shown, brief: Brief, draft: Draft) -> Shown:
        """Returns the shown items with all items of a draft's brief in this section."""
        return self.put(shown, self.read(brief, draft))

    def shorten(self, shown: Shown) -> Shown:
        """Returns the shown items with one fewer in this section."""
        items = self.items(shown)
        position, name = self.cut(items)
        left_out = (*shown.left_out, f"{self.noun} {name}")
        return replace(self.put(shown, items[:position] + items[position + 1 :]), left_out=left_out)

    def text(self, shown: Shown, filler: Filler) -> str:
        """Returns the text with its heading; "" where there is nothing to show."""
        items = self.items(shown)
        text = self.write(filler, items, shown.parent) if items else ""
        return self.heading + text if text else ""
