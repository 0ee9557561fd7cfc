"""What is wrong with a problem folder, told so that its author can mend it."""


class ProblemError(ValueError):
    """A problem that cannot be loaded.

    Attributes:
      what: What is wrong, in one clause.
      where: The file, with its line where one is known, or the option.
      value: The offending value as written; "" where there is none to show.
      remedy: What to do about it, in one sentence.
    """

    def __init__(self, what: str, *, where: str, value: str = "", remedy: str) -> None:
        self.what = what
        self.where = where
        self.value = value
        self.remedy = remedy
        shown = f" ({value})" if value else ""
        super().__init__(f"{where}: {what}{shown}. {remedy}")
