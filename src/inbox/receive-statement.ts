import { permanent, SagaboxError } from "../errors/index.ts";
import { withDeadline } from "../runtime/index.ts";
import { toArrayLiteral, type Param, type Statement } from "../storage/index.ts";
import type { InboxEngine } from "./engine.ts";
import type { Outcome, Receipt } from "./receive-once.ts";
import { claimedStatement, onceStatement } from "./statements.ts";

// Every text is a prepared statement on every connection, so a text made from data would fill their memory.
const MAX_CACHED_TEXTS = 16;

/** Texts of statement handlers, wrapped once each. */
export class StatementCache {
  readonly #schema: string;
  readonly #known = new Map<string, Statement>();
  readonly #claimed = new Map<string, Statement>();

  constructor(schema: string) {
    this.#schema = schema;
  }

  wrap(text: string, params: number): Statement {
    return cacheStatement(this.#known, text, () => onceStatement(this.#schema, text, params));
  }

  /** For a message whose dedupe row is written already. */
  wrapClaimed(text: string, params: number): Statement {
    return cacheStatement(this.#claimed, text, () => claimedStatement(text, params));
  }
}

function cacheStatement(known: Map<string, Statement>, text: string, wrap: () => Statement): Statement {
  const found = known.get(text);
  if (found !== undefined) return found;
  if (!/\bfresh\b/i.test(text)) {
    throw permanent(
      "The text of a statement handler must read from `fresh`, or it would also run for duplicates.",
    );
  }
  if (known.size >= MAX_CACHED_TEXTS) {
    throw permanent(
      "The text of a statement handler changes from message to message. Pass values as parameters.",
    );
  }
  const made = wrap();
  known.set(text, made);
  return made;
}

/** What a statement handler answers. */
export interface StatementEffect {
  readonly text: string;
  readonly params?: readonly Param[];
}

/** The parameters of `StatementCache.wrap`. */
export function onceParams(
  { params = [] }: StatementEffect,
  { consumer, id, topic, type, expiresAt }: Pick<Receipt, "consumer" | "id" | "topic" | "type" | "expiresAt">,
): readonly Param[] {
  return [...params, consumer, id, topic, type, expiresAt];
}

/** Dedupe and effect as one autocommitted statement: the cheapest way, without room for JavaScript in between. */
export async function receiveStatement(
  engine: InboxEngine,
  cache: StatementCache,
  receipt: Receipt,
  effect: StatementEffect,
): Promise<Outcome<undefined>> {
  const { consumer, id, deadlineMs } = receipt;
  const statement = cache.wrap(effect.text, effect.params?.length ?? 0);
  const startedMs = engine.clock.monotonicMs();
  const leave = await engine.slots.acquire();
  try {
    const params = onceParams(effect, receipt);
    const running = engine.database.run<{ fresh: boolean }>(statement, params, { deadlineMs });
    const { rows } = await withDeadline(running, deadlineMs, () => {
      // It may still succeed; a later attempt finds out.
      throw new SagaboxError("COMMIT_UNKNOWN", `The statement was not answered within ${deadlineMs} ms.`);
    });
    if (rows[0]?.fresh === true) {
      return { kind: "processed", result: undefined, durationMs: engine.clock.monotonicMs() - startedMs };
    }
  } finally {
    leave();
  }
  const known = await engine.database.run(engine.sql.recall, [consumer, toArrayLiteral([id])]);
  return known.rowCount > 0 ? { kind: "duplicate" } : { kind: "expired" };
}
