"""`infra/new-certificates` makes an authority once, and certificates for the names it is given."""

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the script."""
    (tmp_path / "infra").mkdir()
    shutil.copy(Path(__file__).parents[2] / "infra" / "new-certificates", tmp_path / "infra")
    return tmp_path


def new_certificates(checkout: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "infra" / "new-certificates", *names],
        capture_output=True,
        text=True,
        umask=0o022,
        check=False,
    )


def shown(checkout: Path, *options: str) -> str:
    command = ["openssl", "x509", "-in", str(checkout / "tls/server.crt"), "-noout", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_second_certificate_is_of_the_same_authority(checkout: Path) -> None:
    assert new_certificates(checkout, "ledger.example.org", "10.0.0.7").returncode == 0
    authority, first = (checkout / "tls/ca.crt").read_text(), shown(checkout, "-serial")
    names = shown(checkout, "-ext", "subjectAltName")
    assert new_certificates(checkout, "other.example.org", "fd00::7").returncode == 0

    assert {"DNS:ledger.example.org", "IP Address:10.0.0.7"} <= {
        name.strip() for name in names.replace("\n", ",").split(",")
    }
    assert "IP Address:FD00:0:0:0:0:0:0:7" in shown(checkout, "-ext", "subjectAltName")
    assert (checkout / "tls/ca.crt").read_text() == authority
    assert shown(checkout, "-serial") != first
    verify = ["openssl", "verify", "-CAfile", "tls/ca.crt", "-verify_hostname", "other.example.org"]
    subprocess.run([*verify, "tls/server.crt"], cwd=checkout, check=True, capture_output=True)


def test_only_the_owner_can_read_the_keys(checkout: Path) -> None:
    new_certificates(checkout, "ledger")

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (checkout / "tls").iterdir()}
    assert modes == {"ca.crt": 0o644, "server.crt": 0o644, "ca.key": 0o600, "server.key": 0o600}


@pytest.mark.parametrize("names", [(), ("a b",), ("-x",), ("a,DNS:b",)])
def test_other_texts_are_refused_and_nothing_is_written(
    checkout: Path, names: tuple[str, ...]
) -> None:
    refused = new_certificates(checkout, *names)

    assert refused.returncode == 2
    assert refused.stderr.startswith("infra/new-certificates: ")
    assert not (checkout / "tls").exists()
