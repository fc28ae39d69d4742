import { canLease, toPublished, type Outgoing, type Published } from "../outbox/index.ts";
import { systemClock } from "../runtime/index.ts";
import { toQueryable, type CallerTransaction } from "../storage/index.ts";
import type { BusTransaction } from "./bus-transaction.ts";
import type { Parts } from "./parts.ts";

type WriteParts = Pick<Parts, "admission" | "writer" | "wakeUp" | "sender" | "flusher">;

/** Writes messages straight away into a transaction that somebody else will end. */
export async function writeInto(
  { admission, writer, wakeUp, sender, flusher }: WriteParts,
  tx: CallerTransaction | BusTransaction,
  outgoing: readonly Outgoing[],
): Promise<Published[]> {
  toQueryable(tx); // refused before anybody waits for room
  const admitted = await admission.admit(outgoing);
  return runInTurn(tx, () => writeAdmitted({ writer, wakeUp, sender, flusher }, tx, { outgoing, admitted }));
}

interface AdmittedMessages {
  readonly outgoing: readonly Outgoing[];
  readonly admitted: readonly Outgoing[];
}

async function writeAdmitted(
  { writer, wakeUp, sender, flusher }: Omit<WriteParts, "admission">,
  tx: CallerTransaction | BusTransaction,
  { outgoing, admitted }: AdmittedMessages,
): Promise<Published[]> {
  const caller = toQueryable(tx);
  const leasable = admitted.length > 0 && admitted.every((one) => one.flush && canLease(one));
  if (leasable && sender.accepts(admitted)) {
    const writtenAtMs = systemClock.monotonicMs();
    flusher.keep(await writer.writeLeased(caller, admitted, sender.leaseMs), writtenAtMs);
    return toPublished(outgoing, admitted, new Set(admitted.map(({ message }) => message.id)));
  }
  const written = await writer.write(caller, admitted);
  const now = admitted.filter((one) => one.schedule === null);
  wakeUp.notifySoon(
    now.map((one) => one.lane),
    tx,
  );
  return toPublished(outgoing, admitted, written);
}

const turns = new WeakMap<object, Promise<unknown>>();

// A write may take more than one statement, and must not be overtaken in between by one that was asked for later.
function runInTurn<T>(tx: object, write: () => Promise<T>): Promise<T> {
  const before = turns.get(tx) ?? Promise.resolve();
  const turn = before.then(write);
  turns.set(
    tx,
    turn.catch(() => undefined),
  );
  return turn;
}
