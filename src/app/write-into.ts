import { canLease, publishedOf, type Outgoing, type Published } from "../outbox/index.ts";
import { systemClock } from "../runtime/index.ts";
import { callerTransaction, type CallerTransaction } from "../storage/index.ts";
import type { BusTransaction } from "./bus-transaction.ts";
import type { Parts } from "./parts.ts";

type Needed = Pick<Parts, "admission" | "writer" | "wakeUp" | "sender" | "flusher">;

/** Writes messages straight away into a transaction that somebody else will end. */
export async function writeInto(
  { admission, writer, wakeUp, sender, flusher }: Needed,
  tx: CallerTransaction | BusTransaction,
  outgoing: readonly Outgoing[],
): Promise<Published[]> {
  callerTransaction(tx); // refused before anybody waits for room
  const admitted = await admission.admit(outgoing);
  return inTurn(tx, () => writeAdmitted({ writer, wakeUp, sender, flusher }, tx, { outgoing, admitted }));
}

interface Asked {
  readonly outgoing: readonly Outgoing[];
  readonly admitted: readonly Outgoing[];
}

async function writeAdmitted(
  { writer, wakeUp, sender, flusher }: Omit<Needed, "admission">,
  tx: CallerTransaction | BusTransaction,
  { outgoing, admitted }: Asked,
): Promise<Published[]> {
  const caller = callerTransaction(tx);
  const leasable = admitted.length > 0 && admitted.every((one) => one.flush && canLease(one));
  if (leasable && sender.accepts(admitted)) {
    const writtenAtMs = systemClock.monotonicMs();
    flusher.keep(await writer.writeLeased(caller, admitted, sender.leaseMs), writtenAtMs);
    return publishedOf(outgoing, admitted, new Set(admitted.map(({ message }) => message.id)));
  }
  const written = await writer.write(caller, admitted);
  const now = admitted.filter((one) => one.schedule === null);
  wakeUp.soon(
    now.map((one) => one.lane),
    tx,
  );
  return publishedOf(outgoing, admitted, written);
}

const turns = new WeakMap<object, Promise<unknown>>();

// A write may take more than one statement, and must not be overtaken in between by one that was asked for later.
function inTurn<T>(tx: object, write: () => Promise<T>): Promise<T> {
  const before = turns.get(tx) ?? Promise.resolve();
  const turn = before.then(write);
  turns.set(
    tx,
    turn.catch(() => undefined),
  );
  return turn;
}
