"""The models that `evoq doctor` finds: those that are named, and those of this machine."""

import os
import urllib.error
import urllib.request

from app.adapters.model.local_servers import KINDS, NOBODY, local_servers
from app.adapters.model.providers.presets import NO_ENDPOINT
from app.adapters.model.providers.spec import model_spec
from app.adapters.proxies import answered_by_proxy, proxy_of
from app.cli.findings import Finding
from app.client.adjustments import another_endpoint
from app.client.local_model import with_local_model
from app.client.target import Target
from app.config.layers import UsageError, from_environment
from app.config.models import OPENAI_KEY, ModelSettings
from app.config.resolve import resolved

ENDPOINT_SECONDS = 5.0


def check_model(target: Target) -> Finding:
    """Returns the finding on the models that the environment names."""
    try:
        layers = with_local_model([from_environment(os.environ)])
    except UsageError as usage:
        return Finding("model", False, f"{usage.where}: {usage.what} ({usage.value})", usage.remedy)
    llm = resolved(layers, {}).settings.llm
    specs = {
        (spec.name, spec.base_url, spec.key_variable): spec
        for model in llm.every_model
        for spec in [model_spec(model, os.environ.get)]
    }
    if not specs:
        key = f"; {OPENAI_KEY} is set" if os.environ.get(OPENAI_KEY) else ""
        remedy = "name one with --set llm.model=NAME or EVOQ_LLM__MODEL; `auto` finds a local one"
        return Finding("model", False, f"none named{key}: tune and mutate are used", remedy)
    details, remedies = [], []
    for spec in specs.values():
        if spec.preset is NO_ENDPOINT:
            details.append(f"{spec.name}, which is not asked over HTTP")
            continue
        key = "set" if spec.api_key else "not set"
        if spec.preset.needs_key:
            details.append(f"{spec.name} at {spec.base_url}, key {key} ({spec.key_variable})")
            remedies += [] if spec.api_key else [_key_remedy(target, spec.key_variable, llm)]
            continue
        error = _endpoint_error(spec.base_url, spec.api_key)
        details.append(f"{spec.name} at {spec.base_url}: {error or 'answers'}")
        remedies += [_endpoint_remedy(target)] if error else []
    return Finding("model", not remedies, "; ".join(details), "; ".join(dict.fromkeys(remedies)))


def check_local_servers() -> Finding:
    """Returns the servers of language models on this machine, each asked at its usual port."""
    found, absent = local_servers()
    name = "models on this machine"
    if not found:
        usual = ", ".join(f"{kind.name} (port {kind.port})" for kind in KINDS)
        answers = [each for each in absent if each.reason != NOBODY]
        odd = "".join(f"; {each.base_url}: {each.reason}" for each in answers)
        remedy = "start one to search with a model of your own: docs/local-models.md"
        return Finding(name, False, f"none of {usual} offers a model{odd}", remedy)
    detail = "; ".join(server.text for server in found)
    return Finding(name, True, f"{detail}: `evoq run PROBLEM --model auto` takes the first")


def _key_remedy(target: Target, variable: str, llm: ModelSettings) -> str:
    """Returns what to do about a key that is not in this process's environment."""
    remedy = f"set {variable}, {another_endpoint(llm)}"
    if target.deployed:
        return f"{remedy}; only gpu workers need it: `evoq doctor` where they run sees theirs"
    return remedy


def _endpoint_remedy(target: Target) -> str:
    """Returns what to do about an endpoint that cannot be reached from here."""
    remedy = "start the endpoint, or correct llm.base_url and the key"
    if target.deployed:
        return f"{remedy}; only gpu workers ask it: `evoq doctor` on their machine tries it there"
    return remedy


def _endpoint_error(url: str, key: str) -> str:
    """Returns why an endpoint cannot be used; "" when it lists its models."""
    request = urllib.request.Request(f"{url.rstrip('/')}/models")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    proxy = proxy_of(url)
    # Without a value, `urllib` would choose a proxy by rules of its own.
    through = {} if proxy is None else {"http": proxy.url, "https": proxy.url}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(through))
    try:
        with opener.open(request, timeout=ENDPOINT_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        page = error.read().decode("utf-8", "replace")
        headers = {name.lower(): value for name, value in error.headers.items()}
        if proxy is not None and answered_by_proxy(url, error.code, headers, page):
            return f"{proxy} answered status {error.code} in place of the endpoint"
        return "" if error.code == 404 else f"status {error.code}"
    except (OSError, ValueError) as error:
        return str(error) if proxy is None else f"through {proxy}: {error}"
