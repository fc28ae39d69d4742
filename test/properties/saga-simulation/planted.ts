import {
  decide,
  type Decision,
  type SagaInput,
  type SagaState,
  type Snapshot,
} from "../../../src/saga/index.ts";

type Engine = typeof decide;
type Ports = Parameters<Engine>[3];

/** Engines with one mistake each, which the checks have to find. */
export const planted = {
  "a step of unknown outcome is not undone": (definition, snapshot, input, ports) =>
    pretendUndone(definition, decide(definition, snapshot, input, ports), snapshot, ports),

  "the first is undone first": (definition, snapshot, input, ports) => {
    const known = Object.keys(snapshot.state.records);
    const turned = { ...snapshot, state: reverseTimes(snapshot.state, known) };
    const decision = decide(definition, turned, input, ports);
    return { ...decision, state: reverseTimes(decision.state, known) };
  },

  "a late success is ignored": (definition, snapshot, input, ports) => {
    const decision = decide(definition, snapshot, input, ports);
    const late = decision.changes.some(({ note }) => note === "a late success");
    return late ? ignoring(decision, snapshot, "it is late") : decision;
  },

  "an undo that came too early counts": (definition, snapshot, input, ports) => {
    const decision = decide(definition, snapshot, input, ports);
    const records = Object.entries(decision.state.records).map(([stepPath, record]) => {
      const undo = record.undo && { ...record.undo, countsFrom: undefined };
      return [stepPath, { ...record, undo }] as const;
    });
    return { ...decision, state: { ...decision.state, records: Object.fromEntries(records) } };
  },

  "an undo does not say what it undoes": (...given) => {
    const decision = decide(...given);
    return {
      ...decision,
      effects: decision.effects.map((effect) => {
        if (effect.kind !== "send") return effect;
        const { undoes: _, ...rest } = effect;
        return rest;
      }),
    };
  },

  "a second try does not say what it stands for": (...given) => {
    const decision = decide(...given);
    return {
      ...decision,
      effects: decision.effects.map((effect) => {
        if (effect.kind !== "send") return effect;
        const { supersedes: _, ...rest } = effect;
        return rest;
      }),
    };
  },

  "an event goes to every step that waits for its name": (definition, snapshot, input, ports) => {
    if (input.kind !== "event") return decide(definition, snapshot, input, ports);
    const key = definition.key(snapshot.input);
    const data = { ...(input.data as object), key, other: key };
    return decide(definition, snapshot, { ...input, data }, ports);
  },

  "a cancellation is obeyed past the pivot": (definition, snapshot, input, ports) =>
    decide(
      definition,
      input.kind === "cancel" ? { ...snapshot, state: { ...snapshot.state, pivoted: false } } : snapshot,
      input,
      ports,
    ),

  "a pivot of unknown outcome is taken for not done": (definition, snapshot, input, ports) => {
    const decision = decide(definition, snapshot, input, ports);
    if (decision.status !== "failed" || decision.ignored !== undefined) return decision;
    const { status } = snapshot;
    const parked = withoutUnknownPivots({ ...snapshot, status, state: decision.state });
    const next = decide(definition, parked, { kind: "cancel", by: { actor: "it", reason: "wrong" } }, ports);
    if (next.ignored !== undefined) return decision;
    const effects = decision.effects.filter(({ kind }) => kind !== "open incident");
    return {
      ...next,
      effects: [...effects, ...next.effects],
      changes: [...decision.changes, ...next.changes],
    };
  },

  "no incident is opened": (...given) => {
    const decision = decide(...given);
    return { ...decision, effects: decision.effects.filter(({ kind }) => kind !== "open incident") };
  },

  "a command is forgotten": (definition, snapshot, input, ports) => {
    const decision = decide(definition, snapshot, input, ports);
    const forgets = input.kind === "reply" && input.outcome.kind === "done";
    return forgets
      ? { ...decision, effects: decision.effects.filter(({ kind }) => kind !== "send") }
      : decision;
  },

  "the parent gets no outcome": (...given) => {
    const decision = decide(...given);
    return { ...decision, effects: decision.effects.filter(({ kind }) => kind !== "tell parent") };
  },

  "a step begins before it is written down": (definition, snapshot, input, ports) => {
    const decision = decide(definition, snapshot, input, ports);
    const [first] = decision.effects.filter(({ kind }) => kind === "send");
    if (first?.kind !== "send" || first.undo || decision.ignored !== undefined) return decision;
    const { [first.stepPath]: _, ...records } = decision.state.records;
    return { ...decision, state: { ...decision.state, records } };
  },

  "the state holds what JSON does not": (definition, snapshot, input, ports) => {
    const decision = decide(definition, snapshot, input, ports);
    const remembers = (snapshot.state as { seen?: unknown }).seen instanceof Map;
    if (remembers && input.kind === "tick") return ignoring(decision, snapshot, "seen before");
    return { ...decision, state: { ...decision.state, seen: new Map() } as SagaState };
  },

  "a timeout wins after the reply": (definition, snapshot, input, ports) => {
    const late = input.kind === "tick" ? timedOut(snapshot, ports.nowMs - 1_000) : snapshot;
    return decide(definition, late, input, ports);
  },

  "a version leaves no line": (...given) => {
    const decision = decide(...given);
    return { ...decision, changes: decision.changes.filter(({ event }) => event !== "compensated") };
  },
} satisfies Record<string, Engine>;

function ignoring(decision: Decision, { state, status }: Snapshot, ignored: string): Decision {
  return { ...decision, state, status, effects: [], changes: [], ignored };
}

/** Every undo of something unknown is reported as done, and its command kept back. */
function pretendUndone(
  definition: Parameters<Engine>[0],
  first: Decision,
  snapshot: Snapshot,
  ports: Ports,
): Decision {
  let decision = first;
  for (;;) {
    const { state, status } = decision;
    const found = Object.entries(state.records).find(
      ([, { outcome, undo }]) => outcome === "unknown" && undo?.status === "in_progress",
    );
    if (found === undefined || decision.ignored !== undefined) return decision;
    const [stepPath, { undo }] = found;
    const { epoch = 1, attempt = 1 } = undo ?? {};
    const input: SagaInput = {
      kind: "worked",
      stepPath,
      undo: true,
      epoch,
      attempt,
      outcome: { kind: "done" },
    };
    const next = decide(definition, { ...snapshot, state, status }, input, ports);
    const kept = decision.effects.filter(
      (effect) => !(effect.kind === "send" && effect.undo && effect.stepPath === stepPath),
    );
    decision = {
      ...next,
      effects: [...kept, ...next.effects],
      changes: [...decision.changes, ...next.changes],
    };
    const record = decision.state.records[stepPath];
    if (record?.undo !== undefined) record.undo.ids = [];
  }
}

function reverseTimes(state: SagaState, stepPaths: readonly string[]): SagaState {
  const records = Object.entries(state.records).map(([stepPath, record]) => {
    const unit = stepPaths.includes(stepPath) ? -record.unit : record.unit;
    return [stepPath, { ...record, unit }] as const;
  });
  return { ...state, records: Object.fromEntries(records) };
}

function withoutUnknownPivots(snapshot: Snapshot): Snapshot {
  const records = Object.entries(snapshot.state.records).map(([stepPath, record]) => {
    const unknown = stepPath.startsWith("p") && record.status === "failed" && record.outcome === "unknown";
    return [stepPath, unknown ? { ...record, outcome: "not_done" as const } : record] as const;
  });
  return { ...snapshot, state: { ...snapshot.state, records: Object.fromEntries(records) } };
}

function timedOut(snapshot: Snapshot, sinceMs: number): Snapshot {
  const records = Object.entries(snapshot.state.records).map(([stepPath, record]) => {
    const late = record.status === "completed" && record.ids.length > 0 && record.startedAtMs < sinceMs;
    return [stepPath, late ? { ...record, status: "failed" as const } : record] as const;
  });
  return { ...snapshot, state: { ...snapshot.state, records: Object.fromEntries(records) } };
}
