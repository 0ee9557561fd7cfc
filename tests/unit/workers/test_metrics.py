"""Where a worker serves its metrics."""

from urllib.request import urlopen

import pytest

from workers.metrics import serve, step_metrics


@pytest.mark.parametrize("address", ["9464", "localhost", "127.0.0.1:x", "127.0.0.1:70000", ":1"])
def test_what_is_no_address_is_named_with_the_remedy(address: str):
    with pytest.raises(ValueError, match=r"EVOQ_METRICS_ADDRESS: .*write 127\.0\.0\.1:9464"):
        serve(address)


def test_a_worker_answers_at_its_address_and_a_second_one_there_is_refused():
    with step_metrics.of("reap"):
        pass

    port = serve("127.0.0.1:0")

    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert b'evoq_step_seconds_count{outcome="done",step="reap"}' in answer.read()
    with pytest.raises(ValueError, match=f"cannot listen on 127.0.0.1:{port}"):
        serve(f"127.0.0.1:{port}")
