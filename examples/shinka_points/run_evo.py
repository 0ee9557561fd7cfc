"""Begins ShinkaEvolve's own search.  Evoqueue reads `task_sys_msg` of it, and never runs it."""

from shinka.core import EvolutionConfig, EvolutionRunner
from shinka.database import DatabaseConfig
from shinka.launch import LocalJobConfig

task_sys_msg = """Place points in the unit square so that the two closest of them are as far apart
as possible. Improve the function `place(count)`, which is measured for 10, 13 and 16 points."""

if __name__ == "__main__":
    EvolutionRunner(
        evo_config=EvolutionConfig(task_sys_msg=task_sys_msg, init_program_path="initial.py"),
        job_config=LocalJobConfig(eval_program_path="evaluate.py"),
        db_config=DatabaseConfig(),
    ).run()
