"""OpenEvolve on the problems of a comparison: `python -m benchmarks.openevolve`.

Runs `openevolve-run` on problem folders with their own config.yaml, to which only the seed, the
model and the record of its children (`evolution_trace`) are added, and writes the report of
`evoq compare` with these runs as one more arm.  OpenEvolve has an environment of its own:

    python -m venv DIR && DIR/bin/pip install openevolve==0.4.0

Nothing of OpenEvolve is simulated.  The model is what `--api-base` names: `evoq mock-llm` for both.
Finished runs are kept in `--results`, which is read again to go on.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from statistics import median_low
from typing import Any, TypeAlias

import yaml

from app.domain.evaluation import COMBINED
from app.domain.program import Program, fingerprint
from app.reports.arms import ArmRun, Comparison, ProblemComparison
from app.reports.comparison import write
from app.reports.page import row, rule

RunKey: TypeAlias = tuple[str, str, int, int]
"""Problem, arm, seed and proposals of a run."""
MODES: Mapping[str, Mapping[str, Any]] = {"diff": {}, "rewrite": {"diff_based_evolution": False}}
"""What an arm has in place of OpenEvolve's defaults."""
COUNTS = ("iterations", "evaluated", "failed", "recorded", "distinct")
"""Of a run: `distinct` are those of the recorded children that differ in more than layout."""
LOST = re.compile(
    r"Iteration \d+ error(?: \[\w+\])?: (.*?)(?: \| tokens: .*)?$"
    r"|Error processing result from iteration \d+: (.*)$",
    re.MULTILINE,
)
BEGUN = re.compile(r"^(\S+ \S+) - .*Starting process-based evolution", re.MULTILINE)
CHILD = re.compile(r"^(\S+ \S+) - .*Iteration (\d+): Program (\S+) \(parent: (\S+)\)", re.MULTILINE)
EVALUATED = re.compile(r"Evaluated program (\S+) in .*?s: (.*)$", re.MULTILINE)
SCORE = re.compile(rf"\b{COMBINED}=(-?[\d.]+)")
TOKENS = re.compile(r"Iteration \d+.* \| tokens: (\d+)", re.MULTILINE)


def config_of(folder: Path, seed: int, mode: str, api_base: str, model: str) -> dict[str, Any]:
    """Returns the folder's config.yaml with the seed, the model, and the record of children."""
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text()) if path.exists() else {}
    return {
        **config,
        **MODES[mode],
        "random_seed": seed,
        "llm": {
            **config.get("llm", {}),
            "api_base": api_base,
            "api_key": "none",
            "models": [{"name": model}],
        },
        "evolution_trace": {"enabled": True, "include_code": True, "buffer_size": 1},
    }


def run(options: argparse.Namespace, folder: Path, mode: str, seed: int) -> dict[str, Any]:
    """Runs one search; returns its row.

    Raises:
      RuntimeError: OpenEvolve ended with an error; the end of what it wrote is in the message.
    """
    with tempfile.TemporaryDirectory(prefix="openevolve-") as name:
        out = Path(name)
        config = config_of(folder, seed, mode, options.api_base, options.model)
        (out / "config.yaml").write_text(yaml.safe_dump(config))
        [initial] = folder.glob("initial_program.*")
        command = [
            options.program, initial, folder / "evaluator.py", "--config", out / "config.yaml",
            "--iterations", str(options.iterations), "--output", out,
        ]  # fmt: skip
        ended = subprocess.run(
            [*map(str, command)],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        if ended.returncode:
            raise RuntimeError(f"{folder.name}, seed {seed}: {ended.stderr[-2000:]}")
        log = "".join(path.read_text() for path in (out / "logs").glob("*.log"))
        trace = (out / "evolution_trace.jsonl").read_text().splitlines()
        best = json.loads((out / "best" / "best_program_info.json").read_text())
    return {
        "problem": folder.name, "arm": f"openevolve-{mode}", "seed": seed,
        "iterations": options.iterations,
        **outcomes(list(map(json.loads, trace)), log, best["metrics"], options.iterations),
    }  # fmt: skip


def outcomes(
    trace: Sequence[Mapping[str, Any]], log: str, end: Mapping[str, float], iterations: int
) -> dict[str, Any]:
    """Returns what a run came to.

    The curve begins with the initial program; an iteration without a child keeps the best so far.
    The log has all children with four decimals.  The record of children is exact, but lacks those
    whose parent was replaced meanwhile; the last value is exact.

    Args:
      trace: The record of children.
      end: The metrics of the best program.
    """
    exact = {
        child[f"{kin}_id"]: child[f"{kin}_metrics"].get(COMBINED)
        for child in trace
        for kin in ("parent", "child")
    }
    shown = {name: SCORE.search(metrics) for name, metrics in EVALUATED.findall(log)}
    scores = {name: float(found[1]) for name, found in shown.items() if found is not None} | exact
    children = {int(number): (time, name) for time, number, name, _ in CHILD.findall(log)}
    curve = [scores[next(iter(shown))]]
    for iteration in range(1, iterations + 1):
        _, name = children.get(iteration, ("", ""))
        curve.append(max(curve[-1], scores.get(name) or curve[-1]))
    start = BEGUN.search(log)
    assert start is not None, log[:500]
    began, ended = (
        datetime.strptime(time, "%Y-%m-%d %H:%M:%S,%f")
        for time in (start[1], max(time for time, _ in children.values()))
    )
    return {
        "curve": [*(min(value, end[COMBINED]) for value in curve[:-1]), end[COMBINED]],
        "evaluated": len(children),
        "recorded": len(trace),
        "distinct": len({fingerprint(Program(child["child_code"])) for child in trace}),
        "failed": sum(scores.get(name) is None for _, name in children.values()),
        "seconds": (ended - began).total_seconds(),
        "tokens": sum(map(int, TOKENS.findall(log))),
        "lost": Counter(one or other for one, other in LOST.findall(log)),
    }


def arm_run(found: Mapping[str, Any]) -> ArmRun:
    name = f"{found['arm']}.{found['problem']}.{found['seed']}"
    curve, cost = tuple(found["curve"]), None
    return ArmRun(
        name, found["seed"], curve, found["evaluated"], found["seconds"], found["tokens"], cost
    )


def beside(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Comparison:
    """Returns a comparison, as `evoq compare` wrote it, with OpenEvolve's runs as further arms."""
    problems = []
    for one in document["problems"]:
        arms = {
            arm: tuple(
                ArmRun(**{**fields, "curve": tuple(fields["curve"])}) for fields in found["runs"]
            )
            for arm, found in one["arms"].items()
        }
        mine = [found for found in rows if found["problem"] == one["problem"]]
        for arm in dict.fromkeys(found["arm"] for found in mine):
            arms[arm] = tuple(arm_run(found) for found in mine if found["arm"] == arm)
        problems.append(ProblemComparison(one["problem"], arms, one["null_arm"]))
    return Comparison(
        document["comparison"], document["budget"], tuple(problems),
        document["differing_settings"], document["unfinished"],
    )  # fmt: skip


def same_score(comparison: Comparison, arms: Sequence[str]) -> Iterator[str]:
    """Yields a table of the proposals to the score of OpenEvolve: the lower median of its ends."""
    yield row(("problem", "score", "arm", "proposals of it", "of the first arm", "ratio"))
    yield rule(6)
    for problem in comparison.problems:
        subject = next(iter(problem.measured))
        for arm in arms:
            if arm not in problem.measured:
                continue
            target = median_low([run.end for run in problem.measured[arm]])
            theirs, ours = problem.to(target, arm), problem.to(target, subject)
            ratio = f"{ours / theirs:.2f}" if ours is not None and theirs else "–"
            shown = ["–" if n is None else str(n) for n in (theirs, ours)]
            yield row((problem.problem, f"{target:.6g}", arm, *shown, ratio))


def counts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields a table of what became of OpenEvolve's iterations."""
    yield row(("problem", "arm", "runs", *COUNTS, "lost"))
    yield rule(4 + len(COUNTS))
    for problem, arm in dict.fromkeys((found["problem"], found["arm"]) for found in rows):
        mine = [found for found in rows if (found["problem"], found["arm"]) == (problem, arm)]
        lost: Counter[str] = sum((Counter(found["lost"]) for found in mine), Counter())
        sums = [sum(found[name] for found in mine) for name in COUNTS]
        reasons = ", ".join(f"{n} {reason}" for reason, n in lost.most_common())
        yield row((problem, arm, str(len(mine)), *map(str, sums), reasons))


def key(found: Mapping[str, Any]) -> RunKey:
    return found["problem"], found["arm"], found["seed"], found["iterations"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", type=Path, metavar="PROBLEM")
    parser.add_argument("--program", default="openevolve-run", help="path of OpenEvolve's command")
    parser.add_argument("--modes", nargs="+", default=["diff"], choices=list(MODES))
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--api-base", default="http://127.0.0.1:8462/v1")
    parser.add_argument("--model", default="simulated")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path("openevolve-results.jsonl"))
    parser.add_argument("--beside", type=Path, metavar="FILE", help="a comparison.json")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the report")
    options = parser.parse_args()
    rows = []
    if options.results.exists():
        rows = [json.loads(line) for line in options.results.read_text().splitlines()]
    done = {key(found) for found in rows}
    jobs = [
        (folder, mode, seed)
        for seed in range(options.seed, options.seed + options.seeds)
        for folder in options.problems
        for mode in options.modes
        if (folder.name, f"openevolve-{mode}", seed, options.iterations) not in done
    ]
    with ThreadPoolExecutor(options.at_once) as pool, options.results.open("a") as file:
        for found in pool.map(lambda job: run(options, *job), jobs):
            rows.append(found)
            file.write(json.dumps(found) + "\n")
            file.flush()
    print("\n".join(counts(rows)))
    if options.beside and options.out:
        comparison = beside(json.loads(options.beside.read_text()), rows)
        options.out.mkdir(parents=True, exist_ok=True)
        write(comparison, options.out)
        print("\n".join(same_score(comparison, list(dict.fromkeys(r["arm"] for r in rows)))))


if __name__ == "__main__":
    main()
