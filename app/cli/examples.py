"""The examples that each command's help ends with."""

_EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "evoq run examples/online_bin_packing",
        "evoq run my_problem --iterations 1000 --set search.islands=3",
        "evoq check my_problem",
        "evoq list-runs",
    ),
    "run": (
        "evoq run examples/online_bin_packing --iterations 400 --seed 1",
        "evoq run initial_program.py evaluator.py --config config.yaml",
        "evoq run my_problem --set llm.model=NAME --set llm.base_url=http://localhost:8000/v1",
        "evoq run my_problem --reproducible --seed 7 --json",
    ),
    "resume": ("evoq resume online_bin_packing-1", "evoq resume 1 --iterations 2000"),
    "watch": ("evoq watch online_bin_packing-1",),
    "list-runs": ("evoq list-runs", "evoq list-runs --json"),
    "show": ("evoq show online_bin_packing-1", "evoq show 1 --json"),
    "costs": ("evoq costs", "evoq costs --json"),
    "pause": ("evoq pause online_bin_packing-1",),
    "cancel": ("evoq cancel online_bin_packing-1",),
    "answer": (
        "evoq answer mine-1 > prompt.md",
        "evoq answer mine-1 --reply reply.md",
    ),
    "export-best": ("evoq export-best online_bin_packing-1 --out best.py",),
    "metrics": (
        "evoq metrics online_bin_packing-1 --format csv > metrics.csv",
        "evoq metrics 1 --format jsonl --out metrics.jsonl",
    ),
    "plot": ("evoq plot online_bin_packing-1", "evoq plot 1 --out pictures"),
    "check": ("evoq check examples/online_bin_packing", "evoq check my_problem --strict --json"),
    "prompt": (
        "evoq prompt my_problem",
        "evoq prompt my_problem --operator rewrite --set prompts.template_dir=my_templates",
        "evoq prompt --run my_problem-1 --program 3f2a91c0 --json",
    ),
    "evaluate": (
        "evoq evaluate examples/online_bin_packing runs/online_bin_packing-1/best_program.py",
        "evoq evaluate my_problem a.py b.py --sandbox process --json",
    ),
    "doctor": ("evoq doctor", "evoq doctor --json"),
    "up": ("evoq up", "evoq up --flower --port 5555"),
    "mock-llm": (
        "evoq mock-llm --port 8400",
        "evoq run my_problem --set llm.model=mock --set llm.base_url=http://127.0.0.1:8400/v1",
        "evoq mock-llm --latency lognormal:0.8,0.5 --rate-429 0.1 --retry-after 1 --rate-hang 0.02",
        "evoq mock-llm --latency 0.05 --tokens-per-second 60 --completion-tokens normal:600,150",
        "evoq mock-llm --replies replies.jsonl --latency 0",
    ),
}


def examples(command: str) -> str:
    """Returns a command's examples as its help shows them; those of `evoq` itself for ""."""
    return "\n\n".join(["Examples:", *_EXAMPLES[command]])
