"""What becomes of the proposals of a real language model: `python -m benchmarks.real_model`.

    python -m benchmarks.real_model --base-url URL --model NAME FOLDER... --iterations 30 --seeds 3
    python -m benchmarks.real_model ... --mixes default rewrite complete=1,rewrite=1
    python -m benchmarks.real_model ... --openevolve PROGRAM

Searches each problem folder with the model that an endpoint serves, once for each seed and mix of
operators, and with OpenEvolve beside it where its command is given.  Prints how far the proposals
of both came, what they spent, and why the others were not used.  Nothing is simulated.  OpenEvolve
has an environment of its own:

    python -m venv DIR && DIR/bin/pip install openevolve==0.4.1

A mix is `default` (that of the folder, else of the settings), the name of an operator, or operators
with their weights.  Finished runs are kept in `--results`, which is read again to go on.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from app.domain.evaluation import COMBINED
from app.domain.program import Program, fingerprint
from app.domain.search.cohort import State
from app.reports.funnel import NAMES
from app.reports.page import row, rule
from benchmarks.openevolve import CHILD, EVALUATED, LOST, TOKENS, config_of

EVOQ, OPENEVOLVE = "evoqueue", "openevolve"
DEFAULT = "default"
UNANSWERED = ("LLM generation failed", "timed out", "Timeout", "Request", "Connection", "returned")
"""Beginnings or parts of what OpenEvolve logs of an iteration whose model did not answer."""
PATIENCE_SECONDS = 600
AT_ONCE = 4
COUNTS = (*NAMES.values(), "above 0", "above the start")


@dataclass(frozen=True, slots=True)
class Searched:
    """What came of one search.

    Attributes:
      counts: Proposals by `COUNTS`; "above the start" are those fitter than every seed.
      lost: Proposals that were not used, by reason.
      start, end: Fitness of the best seed, and of the best program; None where none was measured.
    """

    engine: str
    problem: str
    mix: str
    seed: int
    iterations: int
    model: str
    counts: Mapping[str, int]
    lost: Mapping[str, int]
    tokens: int
    seconds: float
    start: float | None
    end: float | None

    @property
    def key(self) -> tuple[str, str, str, int, int, str]:
        """Names the search among the results."""
        return (self.engine, self.problem, self.mix, self.seed, self.iterations, self.model)


def main() -> None:
    options = _arguments()
    kept = options.results.read_text().splitlines() if options.results.exists() else []
    found = [Searched(**json.loads(line)) for line in kept]
    done = {each.key for each in found}
    with options.results.open("a") as file:
        for name, search in _searches(options):
            if name not in done:
                found.append(search())
                file.write(json.dumps(asdict(found[-1])) + "\n")
                file.flush()
    print("\n".join(table(found)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problems", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--base-url", required=True, help="of the endpoint, with its /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first search")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mixes", nargs="*", default=[DEFAULT], help="none: OpenEvolve alone")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--openevolve", metavar="PROGRAM", help="path of OpenEvolve's command")
    parser.add_argument("--results", type=Path, default=Path("real-model-results.jsonl"))
    return parser.parse_args()


def _searches(
    options: argparse.Namespace,
) -> Iterator[tuple[tuple[object, ...], Callable[[], Searched]]]:
    for seed in range(options.seed, options.seed + options.seeds):
        for folder in options.problems:
            engines = [(EVOQ, mix) for mix in options.mixes]
            engines += [(OPENEVOLVE, DEFAULT)] if options.openevolve else []
            for engine, mix in engines:
                key = (engine, folder.name, mix, seed, options.iterations, options.model)
                yield key, _search(options, engine, folder, mix, seed)


def _search(
    options: argparse.Namespace, engine: str, folder: Path, mix: str, seed: int
) -> Callable[[], Searched]:
    if engine == OPENEVOLVE:
        return lambda: run_openevolve(options, folder, seed)
    return lambda: run_evoqueue(options, folder, mix, seed)


def run_evoqueue(options: argparse.Namespace, folder: Path, mix: str, seed: int) -> Searched:
    """Runs one search as a user does, with a stack of its own.

    Raises:
      RuntimeError: The search did not finish; the end of what it wrote is in the message.
    """
    with tempfile.TemporaryDirectory(prefix="evoq-real-") as home:
        evoq = [str(Path(sys.executable).with_name("evoq"))]
        settings = [*options.settings, *([] if mix == DEFAULT else [_weights(mix)])]
        command = [
            *evoq, "run", folder, "--iterations", options.iterations, "--seed", seed,
            "--name", "search", "--out", Path(home, "out"), "--json",
            "--model", options.model, "--api-base", options.base_url,
            *(part for setting in settings for part in ("--set", setting)),
        ]  # fmt: skip
        environment = {**os.environ, "EVOQ_HOME": str(Path(home, "stack"))}
        began = time.monotonic()
        _output(command, environment)
        seconds = time.monotonic() - began
        summary = json.loads(_output([*evoq, "show", "search", "--json"], environment))
        text = _output([*evoq, "metrics", "search", "--format", "jsonl"], environment)
    rows = [json.loads(line) for line in text.splitlines()]
    return Searched(
        EVOQ, folder.name, mix, seed, options.iterations, options.model,
        **of_evoqueue(summary, rows), seconds=seconds,
    )  # fmt: skip


def of_evoqueue(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the counts of a run from the documents of `evoq show` and `evoq metrics`."""
    seeds = [r["fitness"] for r in rows if r["ordinal"] < 0 and r["fitness"] is not None]
    start = max(seeds, default=None)
    children = [r for r in rows if r["ordinal"] >= 0]
    scores = [r["fitness"] for r in children if r["state"] == State.ADMITTED]
    counts = {step["name"]: step["proposals"] for step in summary["funnel"]["total"]["steps"]}
    lost = Counter(r["failure"] or r["cut"] for r in children if r["failure"] or r["cut"])
    return {
        "counts": {**counts, **_above(scores, start)},
        "lost": dict(lost.most_common()),
        "tokens": summary["tokens"],
        "start": start,
        "end": max([*scores, *seeds], default=None),
    }


def run_openevolve(options: argparse.Namespace, folder: Path, seed: int) -> Searched:
    """Runs one search of OpenEvolve with the folder's own configuration.

    A request may take `PATIENCE_SECONDS`, because a small machine writes few tokens a second, and
    `AT_ONCE` iterations run at a time, so that the endpoint is as busy as with our search.

    Raises:
      RuntimeError: It ended with an error; the end of what it wrote is in the message.
    """
    with tempfile.TemporaryDirectory(prefix="openevolve-") as name:
        out = Path(name)
        config = config_of(folder, seed, "diff", options.base_url, options.model)
        config["llm"]["timeout"] = PATIENCE_SECONDS
        config["evaluator"] = {**config.get("evaluator", {}), "parallel_evaluations": AT_ONCE}
        (out / "config.yaml").write_text(yaml.safe_dump(config))
        [initial] = folder.glob("initial_program.*")
        command = [
            options.openevolve, initial, folder / "evaluator.py", "--config", out / "config.yaml",
            "--iterations", options.iterations, "--output", out,
        ]  # fmt: skip
        began = time.monotonic()
        _output(command, {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"})
        seconds = time.monotonic() - began
        log = "".join(path.read_text() for path in sorted((out / "logs").glob("*.log")))
        record = out / "evolution_trace.jsonl"
        trace = record.read_text().splitlines() if record.exists() else []
    found = of_openevolve(log, list(map(json.loads, trace)), options.iterations)
    return Searched(
        OPENEVOLVE, folder.name, DEFAULT, seed, options.iterations, options.model,
        **found, seconds=seconds,
    )  # fmt: skip


def of_openevolve(log: str, trace: Sequence[Mapping[str, Any]], iterations: int) -> dict[str, Any]:
    """Returns the counts of a run of OpenEvolve, by its log and its record of children.

    The log has every child, with its metrics; the record has the texts of those whose parent was
    still there.  A child whose metrics have an `error`, or no number, ran with an error.
    """
    metrics = {name: _metrics(text) for name, text in EVALUATED.findall(log)}
    texts = {child["child_id"]: child.get("child_code", "") for child in trace}
    start = _score(next(iter(metrics.values()), {}))
    reasons = Counter((one or other) for one, other in LOST.findall(log))
    silent = sum(n for why, n in reasons.items() if any(word in why for word in UNANSWERED))
    children = [(name, parent) for _, _, name, parent in CHILD.findall(log)]
    steps: Counter[str] = Counter(asked=iterations, answered=iterations - silent)
    steps["usable"] = len(children)
    scores, best = [], -math.inf if start is None else start
    seen: set[str] = {fingerprint(Program(child["parent_code"])) for child in trace[:1] if
                      child.get("parent_code")}  # fmt: skip
    for name, parent in children:
        text = texts.get(name)
        mark = fingerprint(Program(text)) if text else name
        if mark in seen:
            reasons["duplicate"] += 1
            continue
        seen.add(mark)
        steps["new"] += 1
        score = _score(metrics.get(name, {}))
        if score is None:
            reasons["with an error"] += 1
            continue
        scores.append(score)
        steps["ran"] += 1
        steps["measured"] += 1
        before = _score(metrics.get(parent, {}))
        steps["better"] += before is None or score > before
        steps["best"] += score > best
        best = max(best, score)
    counts = {name: steps[name] for name in NAMES.values()}
    return {
        "counts": {**counts, **_above(scores, start)},
        "lost": dict(reasons.most_common()),
        "tokens": sum(map(int, TOKENS.findall(log))),
        "start": start,
        "end": None if math.isinf(best) else best,
    }


def table(found: Sequence[Searched]) -> Iterator[str]:
    """Yields a table with a line for each engine, problem and mix: the sums over its seeds."""
    yield row(
        ("model", "problem", "engine", "mix", "runs", *COUNTS, "runs above the start",
         "tokens each", "s each", "not used")
    )  # fmt: skip
    yield rule(9 + len(COUNTS))
    for group in dict.fromkeys((s.model, s.problem, s.engine, s.mix) for s in found):
        mine = [s for s in found if (s.model, s.problem, s.engine, s.mix) == group]
        lost: Counter[str] = sum((Counter(s.lost) for s in mine), Counter())
        asked = sum(s.counts["asked"] for s in mine) or 1
        yield row((
            *group, str(len(mine)),
            *(str(sum(s.counts[name] for s in mine)) for name in COUNTS),
            str(sum(s.counts["above the start"] > 0 for s in mine)),
            f"{sum(s.tokens for s in mine) / asked:.0f}",
            f"{sum(s.seconds for s in mine) / asked:.1f}",
            ", ".join(f"{n} {reason}" for reason, n in lost.most_common()) or "–",
        ))  # fmt: skip


def _above(scores: Sequence[float], start: float | None) -> dict[str, int]:
    above = 0 if start is None else sum(score > start for score in scores)
    return {"above 0": sum(score > 0 for score in scores), "above the start": above}


def _weights(mix: str) -> str:
    """Returns the setting of a mix: `rewrite`, or `rewrite=1,complete=2`."""
    weights = (part.partition("=") for part in mix.split(","))
    return f"search.operators={json.dumps({name: float(w or 1) for name, _, w in weights})}"


def _metrics(text: str) -> dict[str, str]:
    """Returns the metrics of a line of OpenEvolve's log, `name=value` each."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split(", "))}


def _score(metrics: Mapping[str, str]) -> float | None:
    """Returns the combined score, else the mean of all numbers; None after an error."""
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value)
        except ValueError:
            if name == "error":
                return None
    numbers = {name: value for name, value in numbers.items() if math.isfinite(value)}
    if set(numbers) <= {"error"}:
        return None
    return numbers.get(COMBINED, sum(numbers.values()) / len(numbers))


def _output(command: Sequence[object], environment: Mapping[str, str]) -> str:
    ended = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env=dict(environment)
    )
    if ended.returncode:
        raise RuntimeError(f"{command[0]} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return ended.stdout


if __name__ == "__main__":
    main()
