import stat
from pathlib import Path

import pytest
import redis

from app.embedded.children import EmbeddedError
from app.embedded.valkey import EmbeddedValkey


def test_a_queue_outlives_a_restart(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path) as url, redis.Redis.from_url(url) as client:
        client.rpush("cpu", "bell")
        assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    with EmbeddedValkey(tmp_path) as url, redis.Redis.from_url(url) as client:
        assert client.lrange("cpu", 0, -1) == [b"bell"]


def test_only_its_owner_reaches_it_and_only_through_a_socket(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path) as url, redis.Redis.from_url(url) as client:
        path = Path(url.removeprefix("unix://").partition("?")[0])
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert client.config_get("port") == {"port": "0"}


def test_in_a_folder_that_is_not_ascii_the_address_is(tmp_path: Path) -> None:
    home = tmp_path / "gööd"
    home.mkdir()
    with EmbeddedValkey(home) as url, redis.Redis.from_url(url) as client:
        assert url.isascii()
        assert "%" not in url
        assert client.ping()


def test_a_second_start_ends_the_server_of_the_first(tmp_path: Path) -> None:
    first, second = EmbeddedValkey(tmp_path), EmbeddedValkey(tmp_path)
    first.start()
    with redis.Redis.from_url(second.start()) as client:
        assert client.ping()
    assert not first.running
    second.stop()


def test_a_damaged_queue_is_reported_with_its_log(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path):
        pass
    [manifest] = (tmp_path / "data").rglob("*.manifest")
    manifest.write_text("nonsense\n")
    with pytest.raises(EmbeddedError, match=r"(?s)Valkey ended with status 1 .*valkey\.log.*:\n"):
        EmbeddedValkey(tmp_path).start()
