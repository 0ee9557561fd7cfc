"""A run in the layout of OpenEvolve's checkpoints, which its visualiser opens.

Source: OpenEvolve 0.4.0: `checkpoint_N/metadata.json`, and one file a program in `programs/`.
"""

import json
from pathlib import Path

from app.domain.evaluation import COMBINED, Evaluation, merged_metrics
from app.domain.problem import Problem
from app.domain.secrets import redacted
from app.ports.completions import StoredReply
from app.ports.history import Settled
from app.ports.protocols import Store
from app.reports.documents import Json
from app.reports.measured import present_fitness
from app.reports.summary import Summary

MOST_PROGRAMS = 100_000
_MOST_REPLIES = 100


def write_checkpoint(store: Store, summary: Summary, problem: Problem, folder: Path) -> Path:
    """Writes `checkpoints/checkpoint_N` with every admitted program; returns that folder.

    A program is written once, as it was first admitted, with the replies that made it and what is
    kept of their prompts, and is a member of that island, and of each other one where it is an
    elite.  Texts other than programs are written without secrets.  Timestamps are seconds after the
    run's creation.

    Raises:
      OSError: The folder cannot be written to.
    """
    run = summary.run
    checkpoint = folder / "checkpoints" / f"checkpoint_{summary.iterations}"
    (checkpoint / "programs").mkdir(parents=True)
    with store.begin() as tx:
        placed = tx.history.placed(run.id, MOST_PROGRAMS)
        elites, present = tx.archive.elites(run.id), present_fitness(tx, run)
        first = {
            settled.program: (settled, evaluations) for settled, evaluations in reversed(placed)
        }
        sources = tx.programs.get([program for program in first if program])
    fitness = {
        str(program): present.get(str(program), settled.fitness)
        for program, (settled, _) in first.items()
    }
    members: list[dict[str, None]] = [{} for _ in range(run.islands)]
    for program, (settled, evaluations) in first.items():
        source = sources[program or ""].source
        with store.begin() as tx:
            replies = tx.completions.of_proposal(run.id, settled.ordinal, _MOST_REPLIES)
        document = _program(settled, evaluations, source, problem.language, fitness)
        document["prompts"] = _prompts(replies) or None
        _write(checkpoint / "programs" / f"{program}.json", document)
        members[settled.island][str(program)] = None
    maps: list[dict[str, str]] = [{} for _ in range(run.islands)]
    for island, elite in elites:
        maps[island].setdefault("-".join(map(str, elite.cell)), elite.program)
        members[island][elite.program] = None
    best = summary.best.measured.program if summary.best else None
    metadata = {
        "island_feature_maps": maps,
        "islands": [list(programs) for programs in members],
        "archive": list(dict.fromkeys(elite.program for _, elite in elites)),
        "best_program_id": best,
        "island_best_programs": [
            max(programs, key=lambda program: fitness.get(program) or 0.0, default=None)
            for programs in members
        ],
        "last_iteration": summary.iterations,
        "current_island": 0,
        "island_generations": [
            max((e.generation for i, e in elites if i == island), default=0)
            for island in range(run.islands)
        ],
        "last_migration_generation": 0,
        "feature_stats": {},
    }
    _write(checkpoint / "metadata.json", metadata)
    if summary.best is not None:
        (checkpoint / f"best_program{problem.suffix}").write_text(
            summary.best.source, encoding="utf-8", errors="replace"
        )
    return checkpoint


def _program(
    settled: Settled,
    evaluations: list[Evaluation],
    source: str,
    language: str,
    fitness: dict[str, float | None],
) -> Json:
    program, parent = str(settled.program), next(iter(settled.parents), None)
    artifacts = {name: redacted(text) for e in evaluations for name, text in e.artifacts.items()}
    changes = redacted(settled.changes)
    known = parent if parent in fitness and parent != program else None
    return {
        "id": program,
        "code": source,
        "changes_description": changes,
        "language": language,
        "parent_id": known,
        "generation": settled.generation,
        "timestamp": settled.seconds,
        "iteration_found": max(0, settled.ordinal + 1),
        "metrics": {**merged_metrics(program, evaluations), COMBINED: fitness[program]},
        "complexity": 0.0,
        "diversity": 0.0,
        "metadata": {
            "changes": changes,
            "parent_metrics": {COMBINED: fitness[known]} if known else {},
            "island": settled.island,
        },
        "artifacts_json": json.dumps(artifacts) if artifacts else None,
        "artifact_dir": None,
        "embedding": None,
    }


def _prompts(replies: list[StoredReply]) -> dict[str, Json]:
    """Returns the conversations that made a program as OpenEvolve's `log_prompts` keeps them."""
    prompts = {}
    for number, reply in enumerate(replies, start=1):
        texts = {"system": reply.system, "user": reply.user}
        kept = {name: redacted(text) for name, text in texts.items() if text is not None}
        answer = redacted(reply.completion.text)
        prompts[f"{reply.asker.value}_{number}"] = {**kept, "responses": [answer]}
    return prompts


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
