"""Languages: the name of a file's language, by its suffix."""

_LANGUAGES = {
    **{".py": "python", ".rs": "rust", ".r": "r", ".js": "javascript", ".ts": "typescript"},
    **{".c": "c", ".h": "cpp", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".cu": "cuda"},
    **{".cs": "csharp", ".java": "java", ".kt": "kotlin", ".swift": "swift", ".go": "go"},
    **{".jl": "julia", ".rb": "ruby", ".lua": "lua", ".sh": "bash", ".sql": "sql"},
    **{".hs": "haskell", ".lean": "lean", ".metal": "metal", ".md": "markdown"},
    **{".json": "json", ".yaml": "yaml", ".yml": "yaml"},
}


def language_of(path: str) -> str:
    """Returns the language of a file by the suffix of its path, as Markdown fences name it.

    Args:
      path: The path, or the suffix alone with its dot.
    """
    return _LANGUAGES.get("." + path.lower().rpartition(".")[2], "text")
