import { expect, test } from "vitest";
import { aCommand, participants, Release, Reserve } from "../../test/support/consumers.ts";
import { defineStatement } from "../storage/index.ts";

const insert = "insert into effect (consumer, id, note) select 'stock', $1::text, $2::text";
const batch = { size: 50, wait: "20ms" } as const;

type House = Awaited<ReturnType<typeof participants>>;

const kinds: Record<string, (harness: House) => void> = {
  "bulk handlers": ({ registry }) => {
    registry.onBatch(Reserve, { consumer: "stock", batch }, async (messages, { tx }) => {
      for (const { id } of messages) await tx.query(insert, [id, "do"]);
    });
    registry.onBatch(Release, { consumer: "stock", batch }, async (messages, { tx }) => {
      for (const { id } of messages) await tx.query(insert, [id, "undo"]);
    });
  },
  "handlers in batches": ({ registry }) => {
    registry.on(Reserve, { consumer: "stock", batch }, async ({ id }, { tx }) => {
      await tx.query(insert, [id, "do"]);
      return { place: "A1" };
    });
    registry.on(Release, { consumer: "stock", batch }, async ({ id }, { tx }) => {
      await tx.query(insert, [id, "undo"]);
    });
  },
  "statement handlers": ({ registry }) => {
    const effect = (id: string, what: string) => ({ text: `${insert} from fresh`, params: [id, what] });
    registry.on(Reserve, { consumer: "stock", statement: ({ id }) => effect(id, "do") });
    registry.on(Release, { consumer: "stock", statement: ({ id }) => effect(id, "undo") });
  },
};

test.each(Object.keys(kinds))("%s follow the same rules for undo and repetition", async (kind) => {
  const harness = await participants();
  kinds[kind]?.(harness);
  await harness.start();
  const { settled, replyTo } = harness;
  await settled(aCommand(Reserve, "d1"), aCommand(Reserve, "x1"), aCommand(Reserve, "x2"));
  await settled(aCommand(Reserve, "d2", { supersedes: ["d1"] }), aCommand(Reserve, "x3"));
  await settled(
    aCommand(Release, "u1", { undoes: ["d1", "d2"] }),
    aCommand(Release, "u9", { undoes: ["d9"] }),
  );
  await settled(aCommand(Release, "u2", { undoes: ["d1", "d2"] }), aCommand(Reserve, "d9"));
  expect((await harness.did()).toSorted()).toEqual(["do d1", "do x1", "do x2", "do x3", "undo u1"]);
  expect(harness.skips().toSorted()).toEqual(["d2 superseded", "u2 already_undone", "u9 nothing_to_undo"]);
  for (const id of ["d1", "d2", "u1", "u2", "u9"]) expect(replyTo(id)).toMatchObject([{ outcome: "done" }]);
  expect(await harness.deadLetters()).toEqual([]);
});

test("a command that refers to others is not batched, and does not delay the batch", async () => {
  const harness = await participants();
  const sizes: number[] = [];
  harness.registry.onBatch(Reserve, { consumer: "stock", batch, concurrency: 1 }, (messages) => {
    sizes.push(messages.length);
  });
  await harness.start();
  const plain = (from: number) => Array.from({ length: 5 }, (_, n) => aCommand(Reserve, `x${from + n}`));
  await harness.settled(...plain(0), aCommand(Reserve, "d2", { supersedes: ["d1"] }), ...plain(5));
  expect(sizes.toSorted((a, b) => a - b)).toEqual([1, 10]);
});

test("a skipped command is acknowledged in the transaction that settles it", async () => {
  const ackStatement = defineStatement("test.ack", "insert into ack values ('acked')");
  const harness = await participants({ transport: { ackStatement } });
  kinds["statement handlers"]?.(harness);
  await harness.pool.query("create table ack (note text)");
  await harness.start();
  await harness.settled(aCommand(Release, "u1", { undoes: ["d1"] }));
  const together = `select count(*)::int as n from ack join sagabox.consumer_inbox as seen on seen.xmin = ack.xmin`;
  expect(await harness.rows(`${together} where seen.event_id in ('u1', 'd1')`)).toEqual([{ n: 2 }]);
});
