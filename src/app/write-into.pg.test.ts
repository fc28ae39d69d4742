import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { event } from "../message/index.ts";
import { createBus } from "./create-bus.ts";
import { message } from "./prepared.ts";

const Noted = event("noted", { schema: z.object({ n: z.number() }) });

async function setup() {
  const { pool } = await temporaryDatabase({ migrated: true });
  const bus = createBus({ service: "shop", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  const client = await pool.connect();
  onTestFinished(() => client.release());
  await client.query("begin");
  return { pool, bus, client };
}

test("A3: of one id twice in a batch the first is written, in its place, and only of it that is said", async () => {
  const { pool, bus, client } = await setup();
  const published = await bus.publishAll(
    client,
    message(Noted, { n: 1 }, { id: "mine" }),
    message(Noted, { n: 2 }),
    message(Noted, { n: 3 }, { id: "mine" }),
  );
  await client.query("commit");
  expect(published.map(({ written }) => written)).toEqual([true, true, false]);
  const { rows } = await pool.query("select data::json ->> 'n' as n from sagabox.message order by seq");
  expect(rows).toEqual([{ n: "1" }, { n: "2" }]);
});
