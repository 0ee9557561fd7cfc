"""File suffixes and the languages they stand for, as Markdown fences name them."""

_LANGUAGES = {
    ".py": "python",
    ".rs": "rust",
    ".r": "r",
    ".js": "javascript",
    ".ts": "typescript",
    ".c": "c",
    ".h": "cpp",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cxx": "cpp",
    ".cu": "cuda",
    ".cs": "csharp",
    ".java": "java",
    ".kt": "kotlin",
    ".swift": "swift",
    ".go": "go",
    ".jl": "julia",
    ".rb": "ruby",
    ".lua": "lua",
    ".sh": "bash",
    ".sql": "sql",
    ".hs": "haskell",
    ".lean": "lean",
    ".metal": "metal",
    ".md": "markdown",
    ".json": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
}


def language_of(suffix: str) -> str:
    """Returns the language of a file suffix, with its dot; `text` where it is not known."""
    return _LANGUAGES.get(suffix.lower(), "text")
