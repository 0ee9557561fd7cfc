// Frames of Evoqueue's /ws, made from the JSON Schema at /api/frames.json.

export type Admitted = {
  proposal: number | null;
  program: string;
  island: number;
  operator: string;
  fitness: number;
  cell: (number | string)[] | null;
  role?: Role;
};

export type AdmittedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "admitted";
  data: Admitted;
};

export type AdmittedFrame = {
  event: AdmittedEvent;
};

export type Axis = {
  name: string;
  bins?: number;
  low?: number | null;
  high?: number | null;
  provisional?: boolean;
  scaled?: boolean;
};

export type Broken = {
  reason: string;
};

export type BrokenEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "broken";
  data: Broken;
};

export type BrokenFrame = {
  event: BrokenEvent;
};

export type Cancelled = {
  reason: string;
};

export type CancelledEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "cancelled";
  data: Cancelled;
};

export type CancelledFrame = {
  event: CancelledEvent;
};

export type Changed = {
  setting: string;
  before: unknown;
  after: unknown;
};

export type ChangedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "changed";
  data: Changed;
};

export type ChangedFrame = {
  event: ChangedEvent;
};

export type Closed = {
  cohort: number;
  island: number;
  podium: (string)[];
};

export type ClosedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "closed";
  data: Closed;
};

export type ClosedFrame = {
  event: ClosedEvent;
};

export type Crowned = {
  program: string;
  fitness: number;
  settled: number;
};

export type CrownedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "crowned";
  data: Crowned;
};

export type CrownedFrame = {
  event: CrownedEvent;
};

export type Cut = {
  proposal: number;
  island: number;
  operator: string;
  program: string | null;
  role?: Role;
  why: CutReason;
  reason: string;
};

export type CutEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "cut";
  data: Cut;
};

export type CutFrame = {
  event: CutEvent;
};

export type CutReason = "below_threshold" | "duplicate" | "similar" | "same_behaviour" | "withdrawn" | "returned" | "cancelled";

export type Directed = {
  proposal: number;
  island: number;
  category: string;
  text: string;
  by: string;
};

export type DirectedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "directed";
  data: Directed;
};

export type DirectedFrame = {
  event: DirectedEvent;
};

export type Entered = {
  cohort: number;
  island: number;
  proposal: number;
  program: string;
  parents: (string)[];
};

export type EnteredEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "entered";
  data: Entered;
};

export type EnteredFrame = {
  event: EnteredEvent;
};

export type Failed = {
  proposal: number;
  island: number;
  operator: string;
  program: string | null;
  role?: Role;
  failure: FailureKind;
};

export type FailedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "failed";
  data: Failed;
};

export type FailedFrame = {
  event: FailedEvent;
};

export type FailureKind = "no_code" | "bad_edit" | "unchanged" | "refused" | "too_long" | "syntax" | "import_blocked" | "runtime" | "timeout" | "memory" | "output_limit" | "invalid_signature" | "invalid_result" | "sandbox_violation";

export type Finished = {
  proposals: number;
  reason: string;
};

export type FinishedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "finished";
  data: Finished;
};

export type FinishedFrame = {
  event: FinishedEvent;
};

export type Founded = {
  proposal: number | null;
  program: string;
  island: number;
  operator: string;
  fitness: number;
  cell: (number | string)[] | null;
  role?: Role;
};

export type FoundedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "founded";
  data: Founded;
};

export type FoundedFrame = {
  event: FoundedEvent;
};

export type GateTested = {
  cohort: number;
  program: string;
  stage: string;
  failure: FailureKind | null;
};

export type GateTestedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "tested";
  data: GateTested;
};

export type GateTestedFrame = {
  event: GateTestedEvent;
};

export type Improved = {
  program: string;
  fitness: number;
  settled: number;
};

export type ImprovedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "improved";
  data: Improved;
};

export type ImprovedFrame = {
  event: ImprovedEvent;
};

export type LiveGame = {
  run: number;
  trial: number;
  cohort: number;
  first: string;
  second: string;
  number: number;
  moves: (string)[];
  position: string;
};

export type Moved = {
  program: string;
  fitness: number;
  source: number;
  island: number;
  cell: (number | string)[];
  reset?: boolean;
};

export type MovedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "moved";
  data: Moved;
};

export type MovedFrame = {
  event: MovedEvent;
};

export type MovesFrame = {
  moves: LiveGame;
};

export type Noticed = {
  text: string;
};

export type NoticedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "noticed";
  data: Noticed;
};

export type NoticedFrame = {
  event: NoticedEvent;
};

export type Paused = {
  reason: string;
};

export type PausedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "paused";
  data: Paused;
};

export type PausedFrame = {
  event: PausedEvent;
};

export type Played = {
  cohort: number;
  first: string;
  second: string;
  game: number;
  score: number | null;
  moves: (string)[];
  termination: string;
  failure: FailureKind | null;
  culprit: string | null;
};

export type PlayedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "played";
  data: Played;
};

export type PlayedFrame = {
  event: PlayedEvent;
};

export type Refused = {
  proposal: number | null;
  program: string;
  island: number;
  operator: string;
  fitness: number;
  cell: (number | string)[] | null;
  role?: Role;
  clone_of?: string | null;
};

export type RefusedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "refused";
  data: Refused;
};

export type RefusedFrame = {
  event: RefusedEvent;
};

export type Regridded = {
  axes: (Axis)[];
};

export type RegriddedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "regridded";
  data: Regridded;
};

export type RegriddedFrame = {
  event: RegriddedEvent;
};

export type Rerated = {
  program: string;
  fitness: number;
};

export type ReratedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "rerated";
  data: Rerated;
};

export type ReratedFrame = {
  event: ReratedEvent;
};

export type Resumed = {
  budget: number;
};

export type ResumedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "resumed";
  data: Resumed;
};

export type ResumedFrame = {
  event: ResumedEvent;
};

export type Role = "generator" | "refiner" | "judge" | "strategist" | "adversary" | "embedder" | "agent";

export type Scored = {
  cohort: number;
  island: number;
  points: Record<string, number>;
  games: Record<string, number>;
};

export type ScoredEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "scored";
  data: Scored;
};

export type ScoredFrame = {
  event: ScoredEvent;
};

export type Started = {
  seed: number;
  budget: number;
  operators: Record<string, number>;
};

export type StartedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "started";
  data: Started;
};

export type StartedFrame = {
  event: StartedEvent;
};

export type Validated = {
  program: string;
  fitness: number | null;
  failure: FailureKind | null;
};

export type ValidatedEvent = {
  run: number;
  seq: number;
  seconds: number;
  kind: "validated";
  data: Validated;
};

export type ValidatedFrame = {
  event: ValidatedEvent;
};

export type Frame = StartedFrame | ResumedFrame | PausedFrame | ChangedFrame | DirectedFrame | AdmittedFrame | RefusedFrame | CutFrame | FailedFrame | EnteredFrame | GateTestedFrame | PlayedFrame | ScoredFrame | ClosedFrame | FoundedFrame | ImprovedFrame | CrownedFrame | ReratedFrame | NoticedFrame | MovedFrame | RegriddedFrame | ValidatedFrame | FinishedFrame | CancelledFrame | BrokenFrame;
