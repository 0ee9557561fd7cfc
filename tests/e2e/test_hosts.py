"""A worker on another machine, which reaches the deployment by its published ports alone.

It is a project of its own, without a network of the deployment's.  The deployment goes on over TLS
for the tests after these.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.e2e.deployment import Deployment, environment, until, write_variables
from tests.ports import free_port

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]

RUN, PROPOSALS, SECONDS = "far", 16, 300.0
NAME = "host.docker.internal"
"""By which a container knows the machine of the engine."""
SETTLED = (
    f"SELECT count(DISTINCT ordinal) FROM proposals WHERE settled_at IS NOT NULL AND ordinal >= 0 "
    f"AND run = (SELECT id FROM runs WHERE name = '{RUN}')"
)


class OtherMachine:
    """The project of compose.worker.yml."""

    def __init__(self, deployment: Deployment, folder: Path, variables: Mapping[str, str]) -> None:
        self.variables = {**variables, "SETTINGS_FOLDER": str(folder)}
        self._deployment, self._folder = deployment, folder

    def compose(self, *arguments: str, **changed: str) -> "subprocess.CompletedProcess[str]":
        """Returns how a command ended, with other variables for this one."""
        settings = self._folder / ".env"
        write_variables(settings, {**self.variables, **changed})
        file = self._deployment.repository / "compose.worker.yml"
        return subprocess.run(
            [
                *("docker", "compose", "-p", f"{self._deployment.project}-other", "-f", str(file)),
                *("--env-file", str(settings), "--profile", "cpu", *arguments),
            ],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def certificates(deployment: Deployment, folder: Path) -> str:
    """Makes an authority and a certificate in a folder; returns where they are."""
    (folder / "infra").mkdir(parents=True)
    script = folder / "infra" / "new-certificates"
    shutil.copy(deployment.repository / "infra" / "new-certificates", script)
    subprocess.run([script, NAME], check=True, capture_output=True)
    return str(folder / "tls")


@pytest.fixture(scope="module")
def other(
    deployment: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OtherMachine]:
    """The other machine, where nothing runs yet; the deployment evaluates nothing itself."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here, which makes the certificates")
    folder = tmp_path_factory.mktemp("other")
    variables = {
        "TLS_FOLDER": certificates(deployment, folder / "deployment"),
        "POSTGRES_PORT": str(free_port()),
        "REDIS_PORT": str(free_port()),
    }
    [bridge] = deployment.inspect("bridge")["IPAM"]["Config"]
    # An engine that made the network itself names no gateway: it took the first address.
    gateway = bridge.get("Gateway") or str(next(ip_network(bridge["Subnet"]).hosts()))
    deployment.settle(**variables, PUBLISHED_ADDRESS=gateway)
    deployment.add(deployment.repository / "compose.tls.yml")
    deployment.compose("stop", "worker-cpu", "flower", "dashboard")
    deployment.start("beat", "worker-control", "worker-gpu")
    passwords = {f"{of}_PASSWORD": deployment.password(of) for of in ("POSTGRES", "REDIS")}
    found = OtherMachine(
        deployment,
        folder,
        {
            **variables,
            **passwords,
            "LEDGER_HOST": NAME,
            "EVOQ_IMAGE": "evoqueue-test",
            "EVOQ_EVALUATE_CONCURRENCY": "2",
        },
    )
    yield found
    ended = found.compose("down", "--volumes", "--remove-orphans")
    assert ended.returncode == 0, ended.stderr


def test_a_run_ends_at_its_budget_although_the_other_machine_went_away_in_the_middle(
    deployment: Deployment, other: OtherMachine
) -> None:
    started = other.compose("up", "-d", "--wait")
    assert started.returncode == 0, f"{started.stderr}{other.compose('logs').stdout}"
    deployment.begin(RUN, "--no-model", proposals=PROPOSALS)
    until(lambda: deployment.number(SETTLED) >= 4, "some proposals are settled", seconds=SECONDS)

    other.compose("kill", "cpu")
    until(
        lambda: "no worker of the queue `cpu`" in deployment.ask("show", RUN)["waiting"],
        "`evoq show` says that nothing evaluates",
        seconds=SECONDS,
    )
    other.compose("start", "cpu")
    until(lambda: deployment.state(RUN) != "running", "the run has ended", seconds=SECONDS)

    assert deployment.state(RUN) == "finished"
    assert deployment.number(SETTLED) == PROPOSALS


def test_the_servers_take_no_password_without_tls(deployment: Deployment) -> None:
    plain = deployment.try_compose(
        *("exec", "-T", "worker-control", "python", "-c"),
        "import os, psycopg, redis\n"
        "ledger = os.environ['EVOQ_DATABASE_URL'].replace('+psycopg', '').partition('?')[0]\n"
        "queue = os.environ['EVOQ_REDIS_URL'].replace('rediss', 'redis').partition('?')[0]\n"
        "try: psycopg.connect(ledger + '?sslmode=disable')\n"
        "except psycopg.OperationalError as error: print(error)\n"
        "try: redis.Redis.from_url(queue).ping()\n"
        "except redis.ConnectionError as error: print(error)\n",
    )

    assert "no encryption" in plain.stdout
    assert "Connection closed by server" in plain.stdout or "reset" in plain.stdout


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("TLS_FOLDER", "the certificate of the queue (EVOQ_REDIS_URL) is not trusted"),
        ("POSTGRES_PASSWORD", "password authentication failed"),
    ],
)
def test_a_worker_with_a_wrong_authority_or_password_ends_with_one_line(
    deployment: Deployment, other: OtherMachine, tmp_path: Path, wrong: str, why: str
) -> None:
    value = certificates(deployment, tmp_path) if wrong == "TLS_FOLDER" else "wrong"

    ended = other.compose("run", "--rm", "-T", "cpu", **{wrong: value})

    assert ended.returncode != 0
    [line] = [line for line in ended.stderr.splitlines() if "cannot work" in line]
    assert why in line
    assert "Traceback" not in ended.stderr
