import { expect, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";
import { ScriptedTransport } from "../../test/support/scripted-transport.ts";
import { LANES } from "../lanes/index.ts";

test("rule 2: a relay drops rows it had read before it lost and regained their lanes", async () => {
  const harness = await relays();
  const batch = [outgoing({ key: "k" }), outgoing({ key: "k", ttlMs: 300 }), outgoing({ key: "k" })];
  const indexOf = ({ id }: { readonly id: string }): number =>
    batch.findIndex(({ message }) => message.id === id);
  const wire: number[] = [];
  let answer = (): void => undefined;
  const answered = new Promise<void>((done) => (answer = done));
  const slow = new ScriptedTransport();
  slow.answer = async (message) => {
    if (indexOf(message) === 0) await answered;
    wire.push(indexOf(message));
    return "published" as const;
  };
  const mine = harness.fresh();
  const first = harness.relay({ worker: "first", database: mine, transport: slow, leaseMs: 1_000 });
  await first.start();
  await until(() => first.ownedLanes === LANES);
  await harness.publish(...batch);
  await until(() => slow.calls.length === 1);

  mine.silence(); // it hangs until its lease is over; another relay sends the first, dead-letters the second, sends the third
  const quick = new ScriptedTransport();
  quick.answer = (message) => {
    wire.push(indexOf(message));
    return "published";
  };
  const second = harness.relay({ worker: "second", transport: quick, leaseMs: 1_000 });
  await second.start();
  await harness.drained();
  mine.speak();
  await until(() => first.ownedLanes === LANES / 2);
  answer();
  await first.stop();
  expect([wire, await harness.rows("select reason from sagabox.dead_letter")]).toEqual([
    [0, 2, 0],
    [{ reason: "expired" }],
  ]);
});
