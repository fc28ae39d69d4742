import type { Committed, Evidence, WireCopy } from "./evidence.ts";

export interface Violation {
  readonly invariant: string;
  readonly count: number;
  /** The first few, for people. */
  readonly examples: readonly string[];
}

export interface Verdict {
  readonly violations: readonly Violation[];
  /** Copies beyond the first of each message and destination. */
  readonly duplicates: number;
}

/** Holds the evidence against the promises. It knows nothing of the product but what was written down. */
export function check(evidence: Evidence): Verdict {
  const truth = new Map(evidence.committed.map((message) => [message.id, message]));
  const found = [
    violation("I-01 no loss", lost(evidence)),
    violation("I-02 no phantom", phantoms(evidence, truth)),
    violation("I-03 effect once", effectCounts(evidence)),
    violation("I-04 effect authentic", forgeries(evidence, truth)),
    violation("I-05 publish order", publishOrder(evidence, truth)),
    violation("I-06 effect order", effectOrder(evidence)),
    violation("I-10 fencing", staleWrites(evidence)),
    violation("I-11 single owner", robberies(evidence)),
    violation("I-28 bounded duplicates", unexplainedCopies(evidence)),
  ];
  return { violations: found.filter(({ count }) => count > 0), duplicates: duplicates(evidence).length };
}

function violation(invariant: string, all: readonly string[]): Violation {
  return { invariant, count: all.length, examples: all.slice(0, 5) };
}

function lost({ committed, wire, groups }: Evidence): string[] {
  const seen = new Set(wire.map(({ id, group }) => `${group}\n${id}`));
  return groups.flatMap((group) =>
    committed
      .filter(({ id }) => !seen.has(`${group}\n${id}`))
      .map((message) => `${describeMessage(message)} never reached ${group}`),
  );
}

function phantoms({ wire, effects }: Evidence, truth: ReadonlyMap<string, Committed>): string[] {
  return [...wire, ...effects]
    .filter(({ id }) => !truth.has(id))
    .map(({ id }) => `${id} was never committed`);
}

function effectCounts({ committed, effects, handlers }: Evidence): string[] {
  const counts = new Map<string, number>();
  for (const { handler, id } of effects) {
    counts.set(`${handler}\n${id}`, (counts.get(`${handler}\n${id}`) ?? 0) + 1);
  }
  return handlers.flatMap((handler) =>
    committed.flatMap((message) => {
      const count = counts.get(`${handler}\n${message.id}`) ?? 0;
      return count === 1 ? [] : [`${handler} did ${describeMessage(message)} ${count} times`];
    }),
  );
}

function forgeries({ effects }: Evidence, truth: ReadonlyMap<string, Committed>): string[] {
  return effects.flatMap((effect) => {
    const original = truth.get(effect.id);
    if (original === undefined || (original.key === effect.key && original.kseq === effect.kseq)) return [];
    return [`${effect.handler} took ${describeMessage(original)} for ${describeMessage(effect)}`];
  });
}

function publishOrder({ wire }: Evidence, truth: ReadonlyMap<string, Committed>): string[] {
  const seen = new Set<string>();
  const firsts = wire.flatMap(({ id, group }) => {
    const message = truth.get(id);
    if (message === undefined || seen.has(`${group}\n${id}`)) return [];
    seen.add(`${group}\n${id}`);
    return [{ ...message, place: group }];
  });
  return inversions(firsts);
}

function effectOrder({ effects }: Evidence): string[] {
  return inversions(effects.map((effect) => ({ ...effect, place: effect.handler })));
}

function inversions(sequence: readonly (Committed & { readonly place: string })[]): string[] {
  const last = new Map<string, number>();
  return sequence.flatMap((message) => {
    const lane = `${message.place}\n${message.key}`;
    const before = last.get(lane) ?? 0;
    last.set(lane, Math.max(before, message.kseq));
    return message.kseq > before
      ? []
      : [`${describeMessage(message)} came after ${before} at ${message.place}`];
  });
}

// A row is the lane's present owner's to delete, and one that its writer leased to itself the writer's too: with no fence,
// and even when its lease is over. That is right, since it deletes only what it has sent, or sends in the statement that
// deletes: a worker that does not find the row has nothing to do. That nothing is sent under a lease that is over rests on the
// monotonic clock of the writer, and what that leaves is judged as a copy on the wire.
function staleWrites({ settles, laneMoves }: Evidence): string[] {
  const strangers = settles
    .filter(({ writer, worker, owner }) => writer !== worker && owner?.startsWith(`${worker}/`) !== true)
    .map(
      (settle) => `${settle.worker} settled ${settle.lane}/${settle.seq} of ${settle.owner ?? "no owner"}`,
    );
  const backwards = laneMoves
    .filter(
      ({ toOwner, fromFence, toFence }) => toFence < fromFence || (toOwner !== null && toFence === fromFence),
    )
    .map(({ lane, fromFence, toFence }) => `the fence of lane ${lane} went from ${fromFence} to ${toFence}`);
  return [...strangers, ...backwards];
}

// A worker that had to join again may take back its own lanes: it gives up its lease before the database ends it.
function robberies({ laneMoves }: Evidence): string[] {
  const readWorker = (owner: string | null): string | undefined => owner?.split("/", 1)[0];
  return laneMoves
    .filter(({ robbed, fromOwner, toOwner }) => robbed && readWorker(fromOwner) !== readWorker(toOwner))
    .map(({ lane, fromOwner, toOwner }) => `${toOwner} took lane ${lane} from ${fromOwner}, whose lease ran`);
}

function duplicates({ wire }: Evidence): WireCopy[][] {
  const copies = new Map<string, WireCopy[]>();
  for (const copy of wire) {
    const known = copies.get(`${copy.group}\n${copy.id}`);
    if (known === undefined) copies.set(`${copy.group}\n${copy.id}`, [copy]);
    else known.push(copy);
  }
  return [...copies.values()].flatMap((same) => same.slice(1).map(() => same));
}

/** What was published may be unsettled for this long before a fault hits, and the fault may be felt this long. */
const AROUND_MS = 2_000;

// Of all copies of a message, all but one must come from a publisher that a fault hit while that copy was in flight.
function unexplainedCopies(evidence: Evidence): string[] {
  return [...new Set(duplicates(evidence))].flatMap((same) => {
    const unexplained = same.filter((copy) => !evidence.faults.some((fault) => explains(fault, copy)));
    if (unexplained.length <= 1) return [];
    const senders = same.map(({ worker, atMs }) => `${worker} at ${Math.round(atMs)}`).join(", ");
    return [`${same[0]?.id} was sent by ${senders} without a fault to explain it`];
  });
}

function explains(
  fault: { readonly worker: string; readonly fromMs: number; readonly toMs: number },
  copy: WireCopy,
): boolean {
  const hit = fault.worker === "*" || fault.worker === copy.worker;
  return hit && copy.atMs >= fault.fromMs - AROUND_MS && copy.atMs <= fault.toMs + AROUND_MS;
}

function describeMessage({ id, key, kseq }: Committed): string {
  return `${key}#${kseq} (${id})`;
}
