import { isSagaboxError } from "../errors/index.ts";
import { findAttachments, type Json, type UnpackedPayload } from "../message/index.ts";
import type { Compose, Outgoing } from "../outbox/index.ts";
import { classifyFailure } from "../retry/index.ts";
import { random, systemClock } from "../runtime/index.ts";
import { type Queryable, toArrayLiteral } from "../storage/index.ts";
import type { Observer, Spans } from "../telemetry/index.ts";
import { storableErrorText } from "./begin.ts";
import { decide } from "./decide.ts";
import { describeStatusChange, describeStepChange } from "./describe-change.ts";
import type { Decision, SagaEffect } from "./decision.ts";
import type { SagaDefinition } from "./definition.ts";
import { collectResults } from "./draft.ts";
import type { SagaInput } from "./input.ts";
import { encodePendingInput } from "./pending-input.ts";
import type { SagaRegistry } from "./registry.ts";
import { mergeReplayValues, recordPorts } from "./replay-values.ts";
import { sagaCommand } from "./saga-command.ts";
import {
  applyDecision,
  type Birth,
  type Cause,
  findActor,
  findReason,
  type InstanceRow,
  type LoadedInstance,
  openInstance,
  withoutUndefined,
} from "./saga-store.ts";
import { readSeed, startFrom } from "./start.ts";
import type { SagaStatements } from "./statements.ts";
import { encryptText, keyUnavailable, type SagaVault, type SubjectCipher } from "./subject-cipher.ts";
import { traceTransition } from "./trace-saga.ts";
import { buildTransition, type Transition } from "./transition.ts";
import { writeTransition } from "./transition-writer.ts";

/** An open transaction that can also send messages. */
export interface SagaTransaction extends Queryable {
  send(outgoing: Outgoing): Promise<unknown>;
  /** Calls the listener after the commit, or at once if the commit cannot be observed. */
  onCommit(listener: () => void): void;
  /** Whether the commit can be observed, because sagabox opened the transaction. */
  readonly knowsCommit: boolean;
}

export interface SagaEngineParts {
  readonly sql: SagaStatements;
  readonly service: string;
  readonly registry: SagaRegistry;
  readonly compose: Compose;
  readonly newId: () => string;
  readonly observer: Observer;
  readonly spans: Spans;
  readonly maxStateBytes: number;
  /** How long events are kept for an instance that does not exist yet, in milliseconds. */
  readonly earlyMs: number;
  /** Undefined without a key ring: sagas with personal data can then neither be started nor moved. */
  readonly vault?: SagaVault | undefined;
  /** Discards the open dead letters of these messages that are in this database. */
  readonly discardDeadLetters: (tx: Queryable, messageIds: readonly string[]) => Promise<unknown>;
  /** Decrypts the personal fields in the reply to the named command. */
  readonly openReply?: (name: string, reply: Json, tx: Queryable) => Promise<UnpackedPayload>;
}

interface ApplyOptions {
  /** Whether to release the claim in the statement that saves the transition. */
  readonly release?: (decision: Decision) => boolean;
  /** Set for a new instance, which is inserted. */
  readonly birth?: Birth;
  /** Throws if the state is too large, so that the transaction of a `tx` step is rolled back. */
  readonly whole?: boolean;
}

interface ApplyResult {
  readonly instance: LoadedInstance;
  /** Whether the new instance has pending input that arrived before its start. */
  readonly hasInput?: boolean;
  readonly ignored?: string;
}

type SendEffect = Extract<SagaEffect, { kind: "send" }>;

/** Moves saga instances. A decision, its history and its effects are written in one transaction. */
export class SagaEngine {
  readonly parts: SagaEngineParts;
  readonly clock = new DatabaseClock();

  constructor(parts: SagaEngineParts) {
    this.parts = parts;
  }

  get sql(): SagaStatements {
    return this.parts.sql;
  }

  /** `name/version` of each saga that this worker can move. Sagas with personal data need a key ring. */
  listMovableSagas(): readonly string[] {
    const { registry, vault } = this.parts;
    return registry
      .all()
      .filter(({ personal }) => personal === null || vault !== undefined)
      .map(({ name, version }) => `${name}/${version}`);
  }

  /** Locks and loads an instance. Undefined if it does not exist or its data subject was erased. */
  async load(tx: Queryable, id: string): Promise<LoadedInstance | undefined> {
    const [row] = (await tx.run<InstanceRow>(this.sql.load, [id])).rows;
    return row === undefined ? undefined : this.open(row, tx);
  }

  async open(row: InstanceRow, tx?: Queryable): Promise<LoadedInstance | undefined> {
    const instance = await openInstance(this.parts.vault, row, tx);
    if (instance === "sealed") throw keyUnavailable(row.id);
    return instance === "erased" ? undefined : instance;
  }

  /** Applies an input and returns the new instance, or why it was ignored. Throws SAGA_CONFLICT on a stale version. */
  async apply(
    tx: SagaTransaction,
    definition: SagaDefinition,
    before: LoadedInstance,
    cause: Cause,
    options: ApplyOptions = {},
  ): Promise<ApplyResult> {
    const decision = this.decide(definition, before, cause.input);
    if (decision.ignored !== undefined) {
      if (cause.input.kind !== "tick") await this.#ignore(tx, before, cause, decision.ignored);
      return { instance: before, ignored: decision.ignored };
    }
    return traceTransition(this.parts.spans, before, cause, () =>
      this.#carryOut(tx, definition, before, cause, decision, options),
    );
  }

  async #carryOut(
    tx: SagaTransaction,
    definition: SagaDefinition,
    before: LoadedInstance,
    cause: Cause,
    decision: Decision,
    { release, birth, whole = false }: ApplyOptions,
  ): Promise<ApplyResult> {
    const { decision: sendable, outgoing } = decision.effects.some(({ kind }) => kind === "send")
      ? await this.#compose(tx, definition, before, decision, cause)
      : { decision, outgoing: [] };
    const released = release?.(sendable) ?? false;
    const transition = this.#transition(definition, before, sendable, cause, { release: released, whole });
    if (transition === undefined) return this.#applyWithoutResult(tx, definition, before, cause);
    const hasInput = await writeTransition(this.sql, tx, before, transition, birth);
    for (const one of outgoing) await tx.send(one);
    for (const effect of sendable.effects) await applyEffect(this, tx, before, sendable, effect);
    tx.onCommit(() => this.emitChanges(before, sendable, cause.cause));
    return { instance: applyDecision(before, sendable), hasInput };
  }

  // A result that is too large is dropped, so that it does not block later inputs.
  async #applyWithoutResult(
    tx: SagaTransaction,
    definition: SagaDefinition,
    before: LoadedInstance,
    cause: Cause,
  ): Promise<ApplyResult> {
    const smaller = dropLargeResult(cause, before);
    if (smaller !== undefined) return this.apply(tx, definition, before, smaller);
    const ignored = "it is too large to be kept with the saga";
    await this.#ignore(tx, before, { ...cause, input: { kind: "tick" } }, ignored);
    return { instance: before, ignored };
  }

  decide(definition: SagaDefinition, before: LoadedInstance, input: SagaInput): Decision {
    const { ports, drawn } = recordPorts({ nowMs: before.nowMs, newId: this.parts.newId, random });
    return { ...decide(definition, before, input, ports), drawn };
  }

  /** Whether a decision needs no effects beyond the `save` statement. */
  isStateOnly({ effects, ignored }: Decision): boolean {
    return (
      ignored === undefined &&
      effects.every(({ kind }) => kind === "open incident" || kind === "close incident")
    );
  }

  /** Emits the change of the status, and one event for each step whose status changed. */
  emitChanges(before: LoadedInstance, decision: Decision, cause: string): void {
    const { observer } = this.parts;
    const { id, traceparent, status, state } = before;
    const context = { sagaId: id, traceparent };
    if (status !== decision.status)
      observer.emit("saga.changed", describeStatusChange(before, decision, cause), context);
    const { records } = decision.state;
    for (const stepPath of Object.keys(records)) {
      const record = records[stepPath];
      if (record === undefined || record.status === state.records[stepPath]?.status) continue;
      observer.emit("saga.step", describeStepChange(before, stepPath, record, cause), context);
    }
  }

  #transition(
    definition: SagaDefinition,
    before: LoadedInstance,
    decision: Decision,
    cause: Cause,
    { release, whole }: { readonly release: boolean; readonly whole: boolean },
  ): Transition | undefined {
    const { maxStateBytes } = this.parts;
    try {
      return buildTransition(definition, before, decision, cause, { release, maxStateBytes });
    } catch (error) {
      // The caller of a start gets the error.
      if (!isSagaboxError(error, "SAGA_STATE_TOO_LARGE") || cause.input.kind === "start" || whole)
        throw error;
      return undefined;
    }
  }

  // A command with invalid data fails its step. The failure is decided on top of the first decision.
  async #compose(
    tx: Queryable,
    definition: SagaDefinition,
    before: LoadedInstance,
    decision: Decision,
    { cause }: Cause,
  ): Promise<{ readonly decision: Decision; readonly outgoing: readonly Outgoing[] }> {
    let current = decision;
    const outgoing: Outgoing[] = [];
    const done = new Set<SagaEffect>();
    for (;;) {
      const effect = current.effects.find((one): one is SendEffect => one.kind === "send" && !done.has(one));
      if (effect === undefined) return { decision: current, outgoing };
      done.add(effect);
      try {
        outgoing.push(await sagaCommand(this.parts, before, effect, cause, tx));
      } catch (thrown) {
        if (classifyFailure(thrown) === "infrastructure") throw thrown; // the data are not the cause
        current = this.#failUnsendable(definition, before, current, effect, thrown);
      }
    }
  }

  #failUnsendable(
    definition: SagaDefinition,
    before: LoadedInstance,
    decision: Decision,
    { stepPath, undo, epoch }: SendEffect,
    thrown: unknown,
  ): Decision {
    const error = storableErrorText(thrown);
    const { state, status } = decision;
    const effort = undo ? state.records[stepPath]?.undo : state.records[stepPath];
    const attempt = effort?.attempt ?? 1;
    const outcome = { kind: "failed", error, certain: true, permanent: true } as const;
    const input = { kind: "worked", stepPath, undo, epoch, attempt, outcome } as const;
    const next = this.decide(definition, { ...before, state, status }, input);
    return {
      ...next,
      drawn: mergeReplayValues(decision.drawn, input, next.drawn),
      effects: [...decision.effects, ...next.effects],
      changes: [...decision.changes, ...next.changes],
    };
  }

  /** Stores pending input for an instance. Returns false if the instance does not exist. */
  async addPendingInput(
    tx: Queryable,
    sagaId: string,
    id: string,
    cause: string,
    input: SagaInput,
    seal?: SubjectCipher,
  ): Promise<boolean> {
    return addPendingInput(this.sql, tx, { sagaId, id, cause, input, seal });
  }

  async #ignore(tx: Queryable, before: LoadedInstance, { cause, input }: Cause, why: string): Promise<void> {
    const { id, version, seal } = before;
    const text = encryptText(seal, JSON.stringify(input), id, ["ignored", cause]);
    await tx.run(this.sql.ignore, [id, version, why, cause, findActor(input), text, findReason(input)]);
  }
}

// Replaces a result that is too large with a failure. The step has run, so its outcome is unknown.
function dropLargeResult(cause: Cause, { state }: LoadedInstance): Cause | undefined {
  const { input } = cause;
  const error = "its result is too large to be kept with the saga";
  const outcome = { kind: "failed", error, permanent: true } as const;
  if (input.kind === "child" && input.end === "completed") {
    const found = Object.entries(state.records).find(([, { ids }]) => ids.includes(input.childId));
    if (found === undefined) return undefined;
    const [stepPath, { epoch, attempt }] = found;
    return { ...cause, input: { kind: "worked", stepPath, undo: false, epoch, attempt, outcome } };
  }
  if ((input.kind !== "reply" && input.kind !== "worked") || input.outcome.kind !== "done") return undefined;
  return { ...cause, input: { ...input, outcome } };
}

/** Within this time the drift between the monotonic clock and the database clock is negligible. */
const MAX_READING_AGE_MS = 10_000;

/** Estimates the database clock from its last reading and the monotonic clock of this process. */
export class DatabaseClock {
  #lastReading: { readonly nowMs: number; readonly atMs: number } | undefined;

  /** Stores a reading, unless it is behind the estimate because it arrived late. */
  update(nowMs: number): void {
    if (nowMs > (this.nowMs ?? 0)) this.#lastReading = { nowMs, atMs: systemClock.monotonicMs() };
  }

  /** Undefined if the last reading is too old. */
  get nowMs(): number | undefined {
    const sinceMs =
      this.#lastReading === undefined ? Infinity : systemClock.monotonicMs() - this.#lastReading.atMs;
    return this.#lastReading === undefined || sinceMs > MAX_READING_AGE_MS
      ? undefined
      : this.#lastReading.nowMs + sinceMs;
  }
}

interface NewPendingInput {
  readonly sagaId: string;
  readonly id: string;
  readonly cause: string;
  readonly input: SagaInput;
  readonly seal: SubjectCipher | undefined;
}

/** Stores pending input and holds its attachments. Returns false if the instance does not exist. */
async function addPendingInput(
  sql: SagaStatements,
  tx: Queryable,
  { sagaId, id, cause, input, seal }: NewPendingInput,
): Promise<boolean> {
  const { rows } = await tx.run(sql.post, [sagaId, id, cause, encodePendingInput(seal, id, input)]);
  const keys = rows.length === 0 ? [] : findAttachments(JSON.stringify(input));
  if (keys.length > 0) {
    await tx.run(sql.holdAttached, [sagaId, toArrayLiteral(keys.map(({ $attachment: { key } }) => key))]);
  }
  return rows.length > 0;
}

/** Carries out the effects of a decision on child sagas, on the parent, and on dead letters. */
async function applyEffect(
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
    case "discard dead letters":
      await engine.parts.discardDeadLetters(tx, effect.commands);
      return;
    default:
      return undefined;
  }
}

async function startChild(
  engine: SagaEngine,
  tx: SagaTransaction,
  before: LoadedInstance,
  { state }: Decision,
  { stepPath, id, definition, input }: Extract<SagaEffect, { kind: "start child" }>,
): Promise<void> {
  const { correlationId, traceparent } = before;
  const parent = { id: before.id, stepPath };
  let error = "an instance of the child saga with this key exists already";
  const seed = await readSeed(definition, input).catch((thrown: unknown) => ({
    error: storableErrorText(thrown),
  }));
  if ("error" in seed) error = seed.error;
  else {
    const origin = { id, parent, correlationId, traceparent };
    if ((await startFrom(engine, tx, definition, seed, origin)).started) return;
  }
  const { epoch = 1, attempt = 1 } = state.records[stepPath] ?? {};
  const outcome = { kind: "failed", error, certain: true, permanent: true } as const;
  const failed = { kind: "worked", stepPath, undo: false, epoch, attempt, outcome } as const;
  await engine.addPendingInput(tx, before.id, engine.parts.newId(), `child:${id}`, failed, before.seal);
}

// If the child does not exist (its start failed, or it was deleted), the undo is refused: no child would ever reply.
async function revokeChild(
  engine: SagaEngine,
  tx: SagaTransaction,
  before: LoadedInstance,
  { stepPath, epoch, attempt, id }: Extract<SagaEffect, { kind: "revoke child" }>,
): Promise<void> {
  const { newId } = engine.parts;
  if (await engine.addPendingInput(tx, id, newId(), `parent:${before.id}`, { kind: "revoke" })) return;
  const outcome = { kind: "refused", error: `the child saga ${id} does not exist` } as const;
  const failed = { kind: "worked", stepPath, undo: true, epoch, attempt, outcome } as const;
  await engine.addPendingInput(tx, before.id, newId(), `child:${id}`, failed, before.seal);
}
