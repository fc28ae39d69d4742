import { isSagaboxError } from "../errors/index.ts";
import type { Json, Unpacked } from "../message/index.ts";
import type { Compose, Outgoing } from "../outbox/index.ts";
import { classifyFailure } from "../retry/index.ts";
import { random } from "../runtime/index.ts";
import type { Queryable } from "../storage/index.ts";
import type { Observer, Spans } from "../telemetry/index.ts";
import { messageOf } from "./begin.ts";
import { tellFamily } from "./children.ts";
import { DatabaseClock } from "./database-clock.ts";
import { decide } from "./decide.ts";
import type { SagaDefinition } from "./definition.ts";
import type { Decision, SagaEffect } from "./decision.ts";
import { followedBy, recording } from "./drawn.ts";
import type { SagaInput } from "./input.ts";
import { postLetter } from "./post-letter.ts";
import { sagaCommand } from "./saga-command.ts";
import type { SagaRegistry } from "./registry.ts";
import {
  actorOf,
  after,
  reasonOf,
  type Birth,
  type Cause,
  type InstanceRow,
  type Loaded,
  openInstance,
} from "./saga-store.ts";
import { noKeyHere, SEALED_TEXT, sealedText, type PersonSeal, type SagaVault } from "./sealing.ts";
import type { SagaStatements } from "./statements.ts";
import { tracedTransition } from "./trace-saga.ts";
import { transitionOf, type Transition } from "./transition.ts";
import { writeTransition } from "./write-transition.ts";

/** An open transaction that can also take messages. */
export interface SagaTransaction extends Queryable {
  send(outgoing: Outgoing): Promise<unknown>;
  /** Called after the commit, where we know of it; else at once. */
  whenCommitted(told: () => void): void;
  /** Whether we know of the commit, and that what is written now is part of it. */
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
  /** How long something is kept for an instance that does not exist yet. */
  readonly earlyMs: number;
  /** Undefined where there are no keys: sagas about persons can neither be started nor moved then. */
  readonly vault?: SagaVault | undefined;
  /** Opens the personal fields in the reply to the command of this name. */
  readonly openReply?: (name: string, reply: Json, tx: Queryable) => Promise<Unpacked>;
}

interface ApplyOptions {
  /** Whether the claim is given back with it. */
  readonly release?: (decision: Decision) => boolean;
  /** It does not exist yet. */
  readonly birth?: Birth;
  /** Throws when the result is too large, so that whatever was written with it is rolled back. */
  readonly whole?: boolean;
}

interface Applied {
  readonly instance: Loaded;
  /** Something came for it before it existed. */
  readonly mail?: boolean;
  readonly ignored?: string;
}

type Send = Extract<SagaEffect, { kind: "send" }>;

/** Moves instances: one decision, and everything that follows from it in one transaction. */
export class SagaEngine {
  readonly parts: SagaEngineParts;
  readonly clock = new DatabaseClock();

  constructor(parts: SagaEngineParts) {
    this.parts = parts;
  }

  get sql(): SagaStatements {
    return this.parts.sql;
  }

  /** The sagas that this process can move, by name and version: without keys none about a person. */
  movable(): readonly string[] {
    const { registry, vault } = this.parts;
    return registry
      .all()
      .filter(({ personal }) => personal === null || vault !== undefined)
      .map(({ name, version }) => `${name}/${version}`);
  }

  /** Undefined when there is none, or when its person was erased: nothing can be done with it then. */
  async load(tx: Queryable, id: string): Promise<Loaded | undefined> {
    const [row] = (await tx.run<InstanceRow>(this.sql.load, [id])).rows;
    return row === undefined ? undefined : this.open(row, tx);
  }

  async open(row: InstanceRow, tx?: Queryable): Promise<Loaded | undefined> {
    const instance = await openInstance(this.parts.vault, row, tx);
    if (instance === "sealed") throw noKeyHere(row.id);
    return instance === "erased" ? undefined : instance;
  }

  /** The instance afterwards, or why nothing changed. Throws SAGA_CONFLICT when somebody else was faster. */
  async apply(
    tx: SagaTransaction,
    definition: SagaDefinition,
    before: Loaded,
    cause: Cause,
    options: ApplyOptions = {},
  ): Promise<Applied> {
    const decision = this.decide(definition, before, cause.input);
    if (decision.ignored !== undefined) {
      if (cause.input.kind !== "tick") await this.#ignore(tx, before, cause, decision.ignored);
      return { instance: before, ignored: decision.ignored };
    }
    return tracedTransition(this.parts.spans, before, cause, () =>
      this.#carryOut(tx, definition, before, cause, decision, options),
    );
  }

  async #carryOut(
    tx: SagaTransaction,
    definition: SagaDefinition,
    before: Loaded,
    cause: Cause,
    decision: Decision,
    { release, birth, whole = false }: ApplyOptions,
  ): Promise<Applied> {
    const { decision: sendable, outgoing } = decision.effects.some(({ kind }) => kind === "send")
      ? await this.#compose(tx, definition, before, decision, cause)
      : { decision, outgoing: [] };
    const released = release?.(sendable) ?? false;
    const transition = this.#transition(definition, before, sendable, cause, { release: released, whole });
    if (transition === undefined) return this.#withoutResult(tx, definition, before, cause);
    const mail = await writeTransition(this.sql, tx, before, transition, birth);
    for (const one of outgoing) await tx.send(one);
    for (const effect of sendable.effects) await tellFamily(this, tx, before, sendable, effect);
    tx.whenCommitted(() => this.tell(before, sendable));
    return { instance: after(before, sendable), mail };
  }

  // What is too large to be kept must not stand in the way of everything that comes after it.
  async #withoutResult(
    tx: SagaTransaction,
    definition: SagaDefinition,
    before: Loaded,
    cause: Cause,
  ): Promise<Applied> {
    const smaller = tooLarge(cause, before);
    if (smaller !== undefined) return this.apply(tx, definition, before, smaller);
    const ignored = "it is too large to be kept with the saga";
    await this.#ignore(tx, before, { ...cause, input: { kind: "tick" } }, ignored);
    return { instance: before, ignored };
  }

  decide(definition: SagaDefinition, before: Loaded, input: SagaInput): Decision {
    const { ports, drawn } = recording({ nowMs: before.nowMs, newId: this.parts.newId, random });
    return { ...decide(definition, before, input, ports), drawn };
  }

  /** Whether a decision is nothing but a new state, so that one statement is enough. */
  isAlone({ effects, ignored }: Decision): boolean {
    return (
      ignored === undefined &&
      effects.every(({ kind }) => kind === "open incident" || kind === "close incident")
    );
  }

  tell(before: Loaded, { status, state, effects }: Decision): void {
    const { observer } = this.parts;
    const { id, type, status: from, state: old, seal, traceparent } = before;
    const context = { sagaId: id, traceparent };
    if (from !== status) {
      const incident = effects.find(({ kind }) => kind === "open incident");
      const [step, error] =
        incident?.kind === "open incident"
          ? [incident.places.join(", "), seal === undefined ? incident.error : SEALED_TEXT]
          : [null, null];
      observer.tell("saga.changed", { type, id, from, to: status, step, error }, context);
    }
    for (const place of Object.keys(state.records)) {
      const record = state.records[place];
      if (record === undefined || record.status === old.records[place]?.status) continue;
      const durationMs = (record.endedAtMs ?? record.startedAtMs) - record.startedAtMs;
      observer.tell("saga.step", { type, id, step: place, status: record.status, durationMs }, context);
    }
  }

  #transition(
    definition: SagaDefinition,
    before: Loaded,
    decision: Decision,
    cause: Cause,
    { release, whole }: { readonly release: boolean; readonly whole: boolean },
  ): Transition | undefined {
    const { maxStateBytes } = this.parts;
    try {
      return transitionOf(definition, before, decision, cause, { release, maxStateBytes });
    } catch (error) {
      // Whoever starts a saga with too much is told.
      if (!isSagaboxError(error, "SAGA_STATE_TOO_LARGE") || cause.input.kind === "start" || whole)
        throw error;
      return undefined;
    }
  }

  // A command that cannot be sent because its data are wrong fails its step; the decision is made on from there.
  async #compose(
    tx: Queryable,
    definition: SagaDefinition,
    before: Loaded,
    decision: Decision,
    { cause }: Cause,
  ): Promise<{ readonly decision: Decision; readonly outgoing: readonly Outgoing[] }> {
    let current = decision;
    const outgoing: Outgoing[] = [];
    const done = new Set<SagaEffect>();
    for (;;) {
      const effect = current.effects.find((one): one is Send => one.kind === "send" && !done.has(one));
      if (effect === undefined) return { decision: current, outgoing };
      done.add(effect);
      try {
        outgoing.push(await sagaCommand(this.parts, before, effect, cause, tx));
      } catch (thrown) {
        if (classifyFailure(thrown) === "infrastructure") throw thrown; // not the fault of its data
        current = this.#unsendable(definition, before, current, effect, thrown);
      }
    }
  }

  #unsendable(
    definition: SagaDefinition,
    before: Loaded,
    decision: Decision,
    { place, undo, epoch }: Send,
    thrown: unknown,
  ): Decision {
    const error = messageOf(thrown);
    const { state, status } = decision;
    const effort = undo ? state.records[place]?.undo : state.records[place];
    const attempt = effort?.attempt ?? 1;
    const outcome = { kind: "failed", error, certain: true, permanent: true } as const;
    const input = { kind: "worked", place, undo, epoch, attempt, outcome } as const;
    const next = this.decide(definition, { ...before, state, status }, input);
    return {
      ...next,
      drawn: followedBy(decision.drawn, input, next.drawn),
      effects: [...decision.effects, ...next.effects],
      changes: [...decision.changes, ...next.changes],
    };
  }

  /** Leaves something for an instance, to be taken up by whoever knows its version. False when there is none. */
  async post(
    tx: Queryable,
    sagaId: string,
    id: string,
    cause: string,
    input: SagaInput,
    seal?: PersonSeal,
  ): Promise<boolean> {
    return postLetter(this.sql, tx, { sagaId, id, cause, input, seal });
  }

  async #ignore(tx: Queryable, before: Loaded, { cause, input }: Cause, why: string): Promise<void> {
    const { id, version, seal } = before;
    const text = sealedText(seal, JSON.stringify(input), id, ["ignored", cause]);
    await tx.run(this.sql.ignore, [id, version, why, cause, actorOf(input), text, reasonOf(input)]);
  }
}

// A result that cannot be kept was made all the same, so the step counts as done in an unknown way.
function tooLarge(cause: Cause, { state }: Loaded): Cause | undefined {
  const { input } = cause;
  const error = "its result is too large to be kept with the saga";
  const outcome = { kind: "failed", error, permanent: true } as const;
  if (input.kind === "child" && input.end === "completed") {
    const found = Object.entries(state.records).find(([, { ids }]) => ids.includes(input.childId));
    if (found === undefined) return undefined;
    const [place, { epoch, attempt }] = found;
    return { ...cause, input: { kind: "worked", place, undo: false, epoch, attempt, outcome } };
  }
  if ((input.kind !== "reply" && input.kind !== "worked") || input.outcome.kind !== "done") return undefined;
  return { ...cause, input: { ...input, outcome } };
}
