"""The files of a program as an agent finds them."""

from app.domain.program import File, Program


def agent_files(program: Program) -> tuple[File, ...]:
    """Returns the files of a program as an agent finds them: one file has a name then."""
    if program.path:
        return program.files
    return (File("program.py" if program.language == "python" else "program", program.source),)
