"""Problems and their files."""

from app.adapters.store.codec import as_json
from app.adapters.store.driver import DriverConnection
from app.domain.problem import Problem, ProblemDigest
from app.ports.problems import StoredProblem

_ADD = """
    INSERT INTO problems (digest, name, format, options)
    VALUES (%(digest)s, %(name)s, %(format)s, %(options)s)
    ON CONFLICT DO NOTHING RETURNING digest
"""
_ADD_FILE = """
    INSERT INTO problem_files (problem, path, content) VALUES (%(problem)s, %(path)s, %(content)s)
"""
_PROBLEM = "SELECT format, name, options FROM problems WHERE digest = %(digest)s"
_FILES = "SELECT path, content FROM problem_files WHERE problem = %(digest)s"


class SqlProblems:
    """See `app.ports.problems.Problems`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def add(self, problem: Problem) -> None:
        new = {
            "digest": problem.digest,
            "name": problem.name,
            "format": problem.format,
            "options": as_json(dict(problem.options)),
        }
        if self._c.row(_ADD, new) is None:
            return
        for path, content in sorted(problem.files.items()):
            file = {"problem": problem.digest, "path": path, "content": content}
            self._c.write(_ADD_FILE, file)

    def get(self, digest: ProblemDigest) -> StoredProblem:
        result = self._c.row(_PROBLEM, {"digest": digest})
        if result is None:
            raise LookupError(f"the ledger holds no problem {digest!r}")
        files = self._c.rows(_FILES, {"digest": digest})
        contents = {file.path: bytes(file.content) for file in files}
        return StoredProblem(result.format, result.name, contents, result.options)
