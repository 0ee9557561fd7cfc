"""Islands held in memory, for tests and benchmarks of searches without a ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from app.domain.evaluation import CaseId
from app.domain.program import ProgramId
from app.domain.search.archive import Bred, Cell, CellKey, Elite


@dataclass(frozen=True, slots=True)
class Island:
    """An island as a value; see `IslandView`."""

    index: int
    epoch: int = 0
    admitted: int = 0
    cells: Mapping[CellKey, Cell] = field(default_factory=dict)
    barren: int = 0
    children: Mapping[ProgramId, int] = field(default_factory=dict)
    duplicates: Mapping[ProgramId, int] = field(default_factory=dict)
    measured: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    cases: Mapping[ProgramId, Mapping[CaseId, float]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.cells)

    def scores(self, programs: Sequence[ProgramId]) -> Mapping[ProgramId, Mapping[CaseId, float]]:
        return {program: self.cases.get(program, {}) for program in programs}

    def recent(self, stage: str, n: int) -> tuple[float, ...]:
        return self.measured.get(stage, ())[:n]

    def best(self, n: int, skip: int = 0) -> tuple[Elite, ...]:
        elites = [elite for cell in self.cells.values() for elite in cell.occupants]
        ranked = sorted(elites, key=lambda elite: elite.quality, reverse=True)
        return tuple(ranked[skip : skip + n])

    def bred(self, n: int, most: int) -> tuple[Bred, ...]:
        return tuple(
            Bred(
                elite,
                min(most, self.children.get(elite.program, 0)),
                self.duplicates.get(elite.program, 0),
            )
            for elite in self.best(n)
        )

    def elite(self, program: ProgramId) -> Elite | None:
        elites = (elite for cell in self.cells.values() for elite in cell.occupants)
        return next((elite for elite in elites if elite.program == program), None)

    def twin(self, elite: Elite) -> Elite | None:
        elites = (other for cell in self.cells.values() for other in cell.occupants)
        return next(
            (
                other
                for other in elites
                if other.behaviour == elite.behaviour and other.program != elite.program
            ),
            None,
        )

    def uniform(self, n: int, rng: Random) -> tuple[Elite, ...]:
        cells = list(self.cells.values())
        return tuple(cell.best for cell in rng.sample(cells, min(n, len(cells))))

    def heads(self, n: int, skip: int = 0) -> tuple[Elite, ...]:
        heads = (cell.best for cell in self.cells.values())
        ranked = sorted(heads, key=lambda elite: elite.quality, reverse=True)
        return tuple(ranked[skip : skip + n])

    def cell(self, key: CellKey) -> Cell:
        return self.cells.get(key, Cell(key))
