import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { until } from "../../../test/support/relays.ts";
import { Wire } from "../../../test/support/wire.ts";
import { limitStatements } from "../deadlines.ts";
import { Notifications, notify } from "../notifications.ts";
import { SessionHolder } from "../session-holder.ts";
import { defineStatement } from "../statement.ts";
import { pgDatabase } from "./pg.ts";

const one = defineStatement("test.one", "select 1 as n");
const DEADLINE_MS = 500;

/** A pool whose connections go through a wire that can go silent, and one beside it. */
async function setup() {
  const { url, pool: outside } = await temporaryDatabase({ leakGuard: false });
  const wire = await Wire.to(url);
  const pool = new pg.Pool({ connectionString: wire.url, max: 6 });
  pool.on("error", () => undefined);
  onTestFinished(async () => {
    await wire.close();
    await pool.end();
  });
  const database = pgDatabase(pool);
  const prompt = limitStatements(database, DEADLINE_MS);
  const warmUp = (): Promise<unknown> => Promise.all(Array.from({ length: 5 }, () => prompt.run(one)));
  return { wire, pool, outside, database, prompt, warmUp };
}

const noAnswer = {
  code: "STORAGE_UNAVAILABLE",
  message: expect.stringMatching(/did not answer test\.one within 500 ms/) as unknown,
};

test("a statement without an answer fails at its deadline, and its connection is not used again", async () => {
  const { wire, prompt, pool } = await setup();
  await prompt.run(one);
  wire.deafen();
  await expect(prompt.run(one)).rejects.toMatchObject(noAnswer);
  expect(pool.totalCount).toBe(0);
  expect((await prompt.run(one)).rows).toEqual([{ n: 1 }]);
});

test("one missed deadline is enough: the other connections that have been silent since are replaced unasked", async () => {
  const { wire, prompt, warmUp, pool } = await setup();
  await warmUp();
  expect(pool.idleCount).toBeGreaterThan(2);
  wire.deafen();
  await expect(prompt.run(one)).rejects.toMatchObject(noAnswer);
  for (let n = 0; n < 3; n++) await warmUp();
});

test("a session that hangs is broken, what waits on it fails, and its holder opens another", async () => {
  const { wire, prompt } = await setup();
  const holder = new SessionHolder(prompt, "test");
  onTestFinished(() => holder.close());
  const session = await holder.get();
  wire.deafen();
  const asked = await Promise.allSettled([session.run(one), session.run(one)]);
  expect(asked.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(session.broken).toBe(true);
  expect((await (await holder.get()).run(one)).rows).toEqual([{ n: 1 }]);
});

test("a session that was idle while another connection was found to hang is not trusted", async () => {
  const { wire, prompt } = await setup();
  const holder = new SessionHolder(prompt, "test");
  onTestFinished(() => holder.close());
  const idle = await holder.get();
  await prompt.run(one);
  wire.deafen();
  await expect(prompt.run(one)).rejects.toMatchObject(noAnswer);
  const next = await holder.get();
  expect(next).not.toBe(idle);
  expect((await next.run(one)).rows).toEqual([{ n: 1 }]);
});

test("a transaction whose BEGIN is not answered fails, whatever its own SQL may take", async () => {
  const { wire, prompt, pool } = await setup();
  await prompt.run(one);
  const tx = await prompt.begin();
  wire.deafen();
  await expect(tx.query("select pg_sleep(0)")).rejects.toThrow();
  await tx.rollback();
  expect(pool.totalCount).toBe(0);
});

test("SQL of the application has no deadline of ours", async () => {
  const { prompt } = await setup();
  const tx = await prompt.begin();
  await tx.query("select pg_sleep(1)"); // twice the deadline
  await tx.commit();
});

test("a COMMIT without an answer is unknown, and its connection is destroyed", async () => {
  const { wire, prompt, pool } = await setup();
  const tx = await prompt.begin();
  await tx.run(one);
  wire.deafen();
  await expect(tx.commit()).rejects.toMatchObject({
    code: "COMMIT_UNKNOWN",
    cause: { message: expect.stringMatching(/did not answer COMMIT/) as unknown },
  });
  expect(pool.totalCount).toBe(0);
});

test("a hint behind the COMMIT that is never answered does not keep the connection", async () => {
  const { wire, prompt, pool } = await setup();
  const tx = await prompt.begin();
  await tx.run(one);
  let hinted: Promise<unknown> = Promise.resolve();
  const sleep = defineStatement("test.sleep", "select pg_sleep(60)");
  await tx.commit([], { statement: sleep, params: [], onSent: (answered) => void (hinted = answered) });
  wire.deafen();
  expect(await hinted).toBe(false);
  await until(() => pool.totalCount === 0);
});

test("an answer that arrived while this process was busy is not missed", async () => {
  const { prompt, pool } = await setup();
  await prompt.run(one);
  const asked = prompt.run(one);
  await new Promise((resolve) => setImmediate(resolve)); // it has left
  const endMs = performance.now() + 2 * DEADLINE_MS;
  while (performance.now() < endMs) Math.sqrt(2);
  expect((await asked).rows).toEqual([{ n: 1 }]);
  expect(pool.totalCount).toBe(1);
});

test("a connection that only listens and hangs is noticed and replaced", async () => {
  const { wire, prompt, outside } = await setup();
  const heard: string[] = [];
  let gaps = 0;
  const listening = new Notifications({
    database: prompt,
    channel: "news",
    hear: (payload) => void heard.push(payload),
    onGap: () => void (gaps += 1),
    onError: () => undefined,
    keepAliveMs: 100,
  });
  onTestFinished(() => listening.stop());
  await listening.start();
  await until(() => gaps === 1);
  wire.deafen();
  await until(() => gaps === 2, 20_000);
  await notify(pgDatabase(outside), "news", "again");
  await until(() => heard.includes("again"));
});

test("of a pool of the application only the connections that we hold are destroyed", async () => {
  const { wire, prompt, pool } = await setup();
  const theirs = await pool.connect();
  await prompt.run(one);
  wire.deafen();
  await expect(prompt.run(one)).rejects.toMatchObject(noAnswer);
  expect(pool.totalCount).toBe(1);
  theirs.release(true);
});
