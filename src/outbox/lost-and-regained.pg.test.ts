import { expect, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";
import { ScriptedTransport } from "../../test/support/scripted-transport.ts";
import { LANES } from "../lanes/index.ts";

test("rule 2: a relay that lost its lanes and has lanes again sends nothing more of what it had read before", async () => {
  const house = await relays();
  const batch = [outgoing({ key: "k" }), outgoing({ key: "k", ttlMs: 300 }), outgoing({ key: "k" })];
  const place = ({ id }: { readonly id: string }): number =>
    batch.findIndex(({ message }) => message.id === id);
  const wire: number[] = [];
  let answer = (): void => undefined;
  const answered = new Promise<void>((done) => (answer = done));
  const slow = new ScriptedTransport();
  slow.answer = async (message) => {
    if (place(message) === 0) await answered;
    wire.push(place(message));
    return "published" as const;
  };
  const mine = house.fresh();
  const first = house.relay({ worker: "first", database: mine, transport: slow, leaseMs: 1_000 });
  await first.start();
  await until(() => first.ownedLanes === LANES);
  await house.publish(...batch);
  await until(() => slow.calls.length === 1);

  mine.silence(); // it stands still until its lease is over, and another one sends the first, buries the second, sends the third
  const quick = new ScriptedTransport();
  quick.answer = (message) => {
    wire.push(place(message));
    return "published";
  };
  const second = house.relay({ worker: "second", transport: quick, leaseMs: 1_000 });
  await second.start();
  await house.drained();
  mine.speak();
  await until(() => first.ownedLanes === LANES / 2);
  answer();
  await first.stop();
  expect([wire, await house.rows("select reason from sagabox.dead_letter")]).toEqual([
    [0, 2, 0],
    [{ reason: "expired" }],
  ]);
});
