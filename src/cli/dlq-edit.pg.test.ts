import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createBus, event, permanent, retryAfter } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { ada, subjectsBus, subjectsDatabase, Registered } from "../../test/support/data-subjects.ts";
import { until } from "../../test/support/relays.ts";

vi.setConfig({ testTimeout: 60_000 });

const Placed = event("order.placed", {
  schema: z.object({ id: z.string(), total: z.number() }),
  key: ({ id }) => id,
});

async function house(url: string) {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-dlq-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const dlq = (...args: string[]) => cliInProcess(["dlq", ...args], { DATABASE_URL: url, USER: "ann" });
  const file = async (name: string, text: string): Promise<string> => {
    await writeFile(join(folder, name), text);
    return join(folder, name);
  };
  const letters = async (): Promise<{ id: string; messageId: string }[]> => {
    const { stdout } = await dlq("list", "--letters", "--json");
    return (JSON.parse(stdout) as { deadLetters: { id: string; messageId: string }[] }).deadLetters;
  };
  const verify = () => cliInProcess(["verify"], { DATABASE_URL: url });
  return { dlq, file, letters, verify };
}

async function setup() {
  const { pool, url } = await temporaryDatabase({ max: 30, migrated: true });
  const bus = createBus({ service: "shop", database: pool, log: false, outbox: { optimistic: false } });
  onTestFinished(async () => void (await bus.stop()));
  const rows = async (sql: string) => (await pool.query<Record<string, unknown>>(sql)).rows;
  return { bus, rows, ...(await house(url)) };
}

test("dlq edit: one consumer gets the new data under the old id; the letter keeps the old, and each edit is told", async () => {
  const { bus, rows, dlq, file, letters, verify } = await setup();
  const seen: string[] = [];
  bus.on(Placed, { consumer: "mail" }, ({ id, data }) => void seen.push(`mail ${id} ${data.total}`));
  bus.on(Placed, { consumer: "billing" }, ({ id, data }) => {
    if (data.total < 10) throw permanent(`total ${data.total} is too small`);
    seen.push(`billing ${id} ${data.total}`);
  });
  await bus.run();
  const { id } = await bus.transaction((tx) => tx.publish(Placed, { id: "o1", total: 1 }));
  await until(async () => (await letters()).length === 1);
  const first = (await letters())[0]?.id ?? "";

  const two = await file("two.json", '{ "id": "o1",\n  "total": 2 }');
  const tried = await dlq("edit", first, "--data-file", two, "--dry-run");
  expect(tried.stdout).toContain("Checked to be valid JSON only: add --app");
  expect(tried.stdout).toContain("Dry run: nothing was replayed.");
  expect(await dlq("edit", first, "--data-file", two, "--reason", "x")).toMatchObject({
    code: 2,
    stdout: "",
    stderr: expect.stringContaining("is replayed with the new data. Nothing was done") as string,
  });
  expect(await dlq("edit", first, "--data-file", two, "--reason", "half a fix", "--yes")).toMatchObject({
    code: 0,
  });
  await until(async () => (await letters()).some((letter) => letter.id !== first));
  const second = (await letters())[0]?.id ?? "";

  await bus.deadLetters.edit(second, {
    data: '{"id":"o1","total":30}',
    actor: "bob",
    reason: "the other half",
  });
  await until(async () => seen.length === 2);
  expect(seen.toSorted()).toEqual([`billing ${id} 30`, `mail ${id} 1`]);
  const { stdout } = await dlq("show", second);
  expect(stdout).toMatch(/version 1 by ann: half a fix .*not checked against a contract/);
  expect(stdout).toMatch(/version 2 by bob: the other half .*checked against order\.placed version 1/);
  expect(stdout).toContain('data      { "id": "o1",');
  expect((await dlq("show", first)).stdout).toContain('data      {"id":"o1","total":1}');
  expect(await rows("select actor, action, outcome from sagabox.audit_log order by id")).toEqual([
    { actor: "ann", action: "dead_letter.edit", outcome: "done" },
    { actor: "bob", action: "dead_letter.edit", outcome: "done" },
  ]);
  expect(await rows("select count(*)::int as copies from sagabox.message")).toEqual([{ copies: 3 }]);
  expect(await verify()).toMatchObject({ code: 0 });
});

test("dlq edit: what does not fit the contract, has another key, is no JSON or changes nothing is refused, and noted", async () => {
  const { bus, rows, dlq, file, letters } = await setup();
  bus.on(Placed, { consumer: "billing" }, () => {
    throw permanent("never");
  });
  await bus.run();
  await bus.transaction((tx) => tx.publish(Placed, { id: "o1", total: 1 }));
  await until(async () => (await letters()).length === 1);
  const letter = (await letters())[0]?.id ?? "";
  const app = fileURLToPath(new URL("../../test/support/dead-letter-service.ts", import.meta.url));
  for (const [text, code] of [
    ['{"id":"o1","total":"much"}', "PAYLOAD_INVALID"],
    ['{"id":"o2","total":1}', "DEAD_LETTER_EDIT_REFUSED"],
    ['{ "id":"o1", "total":1 }', "DEAD_LETTER_EDIT_REFUSED"],
    ['{"id":"o1"', "PAYLOAD_NOT_JSON"],
    ['{"id":"o1","total":1,"total":2}', "PAYLOAD_DUPLICATE_KEY"],
  ] as const) {
    const data = await file("data.json", text);
    const told = await dlq("edit", letter, "--data-file", data, "--app", app, "--reason", "x", "--yes");
    expect(told, text).toMatchObject({ code: 1, stderr: expect.stringContaining(`[${code}]`) as string });
  }
  expect(await rows("select outcome, count(*)::int as n from sagabox.audit_log group by 1")).toEqual([
    { outcome: "refused", n: 5 },
  ]);
  const good = await file("good.json", '{"id":"o1","total":3}');
  expect((await dlq("edit", letter, "--data-file", good, "--app", app, "--dry-run")).stdout).toContain(
    "Matches order.placed version 1",
  );
  expect(await dlq("edit", letter)).toMatchObject({ code: 2 });
  expect(await dlq("edit", letter, "--data-file", "nowhere.json")).toMatchObject({ code: 2 });
});

test("dlq edit: personal values stay sealed and in place, and the handler can still open them", async () => {
  const database = await subjectsDatabase(30);
  const bus = subjectsBus(database);
  const { dlq, file, letters } = await house(database.url);
  const got: unknown[] = [];
  bus.on(Registered, { consumer: "mail" }, ({ data }) => {
    if (data.guests[0]?.seat === 1) throw permanent("seat 1 is taken");
    got.push(data);
  });
  await bus.run();
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await until(async () => (await letters()).length === 1);
  const letter = (await letters())[0]?.id ?? "";
  const shown = JSON.parse((await dlq("show", letter, "--json")).stdout) as {
    original_message: { data: string };
  };
  const data = shown.original_message.data;
  expect(data).toContain("$sealed");
  expect(data).not.toContain("canary");
  const clear = await file("clear.json", data.replace(/"email":\{[^}]*\}/, '"email":"eve@example.org"'));
  expect((await dlq("edit", letter, "--data-file", clear, "--dry-run")).stderr).toContain(
    "email is personal and encrypted",
  );
  const fixed = await file("fixed.json", data.replace('"seat":1', '"seat":7'));
  expect(await dlq("edit", letter, "--data-file", fixed, "--reason", "moved", "--yes")).toMatchObject({
    code: 0,
  });
  await until(async () => got.length === 1);
  expect(got).toEqual([{ ...ada, guests: [{ name: "Canary Babbage", seat: 7 }, ada.guests[1]] }]);
});

test("dlq bury: a delivery that is put off, and a message that waits to be sent, become letters and can come back", async () => {
  const { bus, dlq, letters, rows, verify } = await setup();
  let late = true;
  const seen: string[] = [];
  for (const consumer of ["billing", "mail"]) {
    bus.on(Placed, { consumer }, ({ data }) => {
      if (late) throw retryAfter("1h", "not now");
      seen.push(`${consumer} ${data.id}`);
    });
  }
  const { id } = await bus.transaction((tx) => tx.publish(Placed, { id: "o1", total: 1 }));
  expect(await dlq("bury", id, "--reason", "a test order", "--yes")).toMatchObject({
    code: 0,
    stdout: `Message ${id} was removed from the outbox and is now dead letter 1.\n`,
  });
  expect(await rows("select 1 from sagabox.outbox")).toEqual([]);
  expect(await letters()).toMatchObject([
    { messageId: id, consumer: null, reason: "buried", errorMessage: "a test order" },
  ]);
  expect(await verify()).toMatchObject({ code: 0 });
  await bus.run();
  await dlq("replay", "1", "--reason", "after all");
  await until(
    async () => (await rows("select 1 from sagabox.queue where last_error is not null")).length === 2,
  );
  expect(await dlq("bury", id, "--reason", "x", "--yes")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("it waits 2 times, so a consumer must be named: billing, mail") as string,
  });
  expect(await dlq("bury", id, "--consumer", "mail", "--reason", "x")).toMatchObject({ code: 2 });
  expect((await dlq("bury", id, "--consumer", "mail", "--reason", "x", "--yes")).stdout).toContain(
    "the queue of mail",
  );
  expect(await dlq("bury", id, "--consumer", "mail", "--reason", "x", "--yes")).toMatchObject({
    stderr: expect.stringContaining("it does not wait for consumer mail") as string,
  });
  late = false;
  await dlq("replay", "--consumer", "mail", "--reason", "now", "--yes");
  expect(seen).toEqual(["mail o1"]);
  expect(await verify()).toMatchObject({ code: 0 });
  expect(
    await rows(
      "select outcome, count(*)::int as n from sagabox.audit_log where action = 'dead_letter.bury' group by 1 order by 1",
    ),
  ).toEqual([
    { outcome: "done", n: 2 },
    { outcome: "refused", n: 2 },
  ]);
});
