import type { Json } from "../message/index.ts";
import { storableErrorText } from "./begin.ts";
import type { Decision, SagaEffect } from "./decision.ts";
import { collectResults } from "./draft.ts";
import type { SagaEngine, SagaTransaction } from "./engine.ts";
import { withoutUndefined, type LoadedInstance } from "./saga-store.ts";
import { readSeed, startFrom } from "./start.ts";

/** Carries out what a decision means for the children of an instance, or for its parent. */
export async function applyFamilyEffect(
  engine: SagaEngine,
  tx: SagaTransaction,
  before: LoadedInstance,
  decision: Decision,
  effect: SagaEffect,
): Promise<void> {
  const { newId } = engine.parts;
  switch (effect.kind) {
    case "start child":
      return startChild(engine, tx, before, decision, effect);
    case "revoke child":
      return revokeChild(engine, tx, before, effect);
    case "tell parent": {
      const results =
        effect.end === "completed" ? (withoutUndefined(collectResults(decision.state)) as Json) : null;
      const input = { kind: "child", childId: before.id, end: effect.end, results } as const;
      await engine.addPendingInput(tx, effect.parentId, newId(), `child:${before.id}`, input, before.seal);
      return;
    }
    default:
      return undefined;
  }
}

async function startChild(
  engine: SagaEngine,
  tx: SagaTransaction,
  before: LoadedInstance,
  { state }: Decision,
  { place, id, definition, input }: Extract<SagaEffect, { kind: "start child" }>,
): Promise<void> {
  const { correlationId, traceparent } = before;
  const parent = { id: before.id, place };
  let error = "an instance of the child saga with this key exists already";
  const seed = await readSeed(definition, input).catch((thrown: unknown) => ({
    error: storableErrorText(thrown),
  }));
  if ("error" in seed) error = seed.error;
  else {
    const origin = { id, parent, correlationId, traceparent };
    if ((await startFrom(engine, tx, definition, seed, origin)).started) return;
  }
  const { epoch = 1, attempt = 1 } = state.records[place] ?? {};
  const outcome = { kind: "failed", error, certain: true, permanent: true } as const;
  const failed = { kind: "worked", place, undo: false, epoch, attempt, outcome } as const;
  await engine.addPendingInput(tx, before.id, engine.parts.newId(), `child:${id}`, failed, before.seal);
}

// A child that is not there, because its start failed or because it was deleted, would never answer.
async function revokeChild(
  engine: SagaEngine,
  tx: SagaTransaction,
  before: LoadedInstance,
  { place, epoch, attempt, id }: Extract<SagaEffect, { kind: "revoke child" }>,
): Promise<void> {
  const { newId } = engine.parts;
  if (await engine.addPendingInput(tx, id, newId(), `parent:${before.id}`, { kind: "revoke" })) return;
  const outcome = { kind: "refused", error: `the child saga ${id} does not exist` } as const;
  const failed = { kind: "worked", place, undo: true, epoch, attempt, outcome } as const;
  await engine.addPendingInput(tx, before.id, newId(), `child:${id}`, failed, before.seal);
}
