"""Scores how far apart points lie: the smallest distance between two of them, over three sizes."""

import argparse
import math

from shinka.core import run_shinka_eval

COUNTS = (10, 13, 16)


def arguments(index):
    return {"count": COUNTS[index]}


def validate(points):
    """Returns whether these are distinct points of the unit square, and otherwise why."""
    if len(points) not in COUNTS:
        return False, f"{len(points)} points"
    if any(not 0.0 <= coordinate <= 1.0 for point in points for coordinate in point):
        return False, "a point lies outside the unit square"
    return True, None


def aggregate(results):
    """Returns the mean of the smallest distances; the tightest pair is the feedback."""
    pairs = [tightest(points) for points in results]
    distances = [math.dist(*pair) for pair in pairs]
    return {
        "combined_score": sum(distances) / len(distances),
        "public": {f"distance_{count}": d for count, d in zip(COUNTS, distances, strict=True)},
        "private": {"worst_size": COUNTS[distances.index(min(distances))]},
        "text_feedback": f"The tightest pair of {COUNTS[-1]} points is {pairs[-1]}.",
    }


def tightest(points):
    pairs = [(a, b) for number, a in enumerate(points) for b in points[:number]]
    return min(pairs, key=lambda pair: math.dist(*pair))


def main(program_path, results_dir):
    run_shinka_eval(
        program_path=program_path,
        results_dir=results_dir,
        experiment_fn_name="run_experiment",
        num_runs=len(COUNTS),
        get_experiment_kwargs=arguments,
        validate_fn=validate,
        aggregate_metrics_fn=aggregate,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program_path", default="initial.py")
    parser.add_argument("--results_dir", default="results")
    given = parser.parse_args()
    main(given.program_path, given.results_dir)
