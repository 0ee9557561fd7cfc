"""The settings of a process."""

from app.adapters.model.providers.spec import ProcessLimits
from app.adapters.queue.address import client_url
from app.config.layers import wrong_variables
from app.config.settings import Settings
from app.ports.protocols import Misconfigured


def own_settings() -> Settings:
    """Returns the settings in the environment of this process.

    Raises:
      Misconfigured: A variable cannot be used.
    """
    for variable, why in wrong_variables().items():
        raise Misconfigured(f"{variable}: {why}")
    return Settings()


def process_limits(settings: Settings | None) -> ProcessLimits:
    """Returns the limits of a process by its settings; none without settings."""
    if settings is None:
        return ProcessLimits()
    queue = settings.redis_url
    return ProcessLimits(
        redis_url=client_url(queue.get_secret_value()) if queue else None,
        max_in_flight=settings.llm_max_in_flight,
        target_in_flight=settings.llm_target_in_flight,
        parallel_generations=settings.llm_parallel_generations,
    )
