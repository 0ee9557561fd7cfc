"""What the simulation measures of itself, under vLLM's names."""

from collections import Counter
from dataclasses import dataclass, field

from mock_llm.batch import Batch
from mock_llm.faults import Fault

NOTICE = "SIMULATION: evoq mock-llm; no model ran and no accelerator was used"


@dataclass(slots=True)
class Measures:
    """Counts from the start of the server."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    queue_full: int = 0
    peak_running: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    injected: Counter[Fault] = field(default_factory=Counter)
    hang_seconds: float = 0.0
    queue_seconds: float = 0.0
    request_seconds: float = 0.0
    answered: int = 0

    def text(self, batch: Batch, model: str) -> str:
        """Returns them as Prometheus reads them."""
        label = f'engine="0",model_name="{model}"'
        lines = [f"# {NOTICE}"]

        def add(name: str, kind: str, *samples: tuple[str, str, float]) -> None:
            lines.append(f"# TYPE {name} {kind}")
            lines.extend(
                f"{name}{suffix}{{{label}{extra}}} {value:.9g}" for suffix, extra, value in samples
            )

        add("evoq_mock_llm_simulation", "gauge", ("", "", 1))
        add("vllm:num_requests_running", "gauge", ("", "", batch.running))
        add("vllm:num_requests_waiting", "gauge", ("", "", batch.waiting))
        usage = batch.running / batch.speed.max_num_seqs
        add("vllm:kv_cache_usage_perc", "gauge", ("", "", usage))
        add("evoq_mock_llm_peak_running", "gauge", ("", "", self.peak_running))
        for name, count in (
            ("prompt_tokens", self.prompt_tokens),
            ("generation_tokens", self.generation_tokens),
            ("prefix_cache_queries", self.prefix_queries),
            ("prefix_cache_hits", self.prefix_hits),
        ):
            add(f"vllm:{name}", "counter", ("_total", "", count))
        reasons = [
            ("_total", f',finished_reason="{reason}"', self.finished[reason])
            for reason in ("stop", "length", "abort")
        ]
        add("vllm:request_success", "counter", *reasons)
        full = ("_total", ',reason="max_num_queued_reqs"', self.queue_full)
        add("vllm:admission_rejections", "counter", full)
        for name, seconds in (
            ("request_queue_time_seconds", self.queue_seconds),
            ("e2e_request_latency_seconds", self.request_seconds),
        ):
            whole = ("_bucket", ',le="+Inf"', self.answered)
            total, times = ("_sum", "", seconds), ("_count", "", self.answered)
            add(f"vllm:{name}", "histogram", whole, times, total)
        faults = [("_total", f',fault="{one}"', self.injected[one]) for one in Fault]
        add("evoq_mock_llm_injected_faults", "counter", *faults)
        add("evoq_mock_llm_hang_seconds", "counter", ("_total", "", self.hang_seconds))
        return "\n".join(lines) + "\n"
