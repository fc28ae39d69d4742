import { isErased, isEncrypted, type Json } from "sagabox";
import { expect, test } from "vitest";
import { RecordingObserver } from "../support/recording-observer.ts";
import {
  ada,
  canaries,
  subjectsBus,
  createDeferred,
  subjectsDatabase,
  Registered,
  testKeyRing,
  wholeDatabase,
} from "../support/data-subjects.ts";

test("C6: personal fields are in no table in clear, and the handler gets them", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  const got = createDeferred<unknown>();
  bus.on(Registered, { consumer: "mail", storePayload: true }, ({ data }) => got.resolve(data));
  await bus.run();
  await bus.transaction((tx) => tx.publish(Registered, ada));
  expect(await got.promise).toEqual(ada);
  const text = await wholeDatabase(database);
  expect(canaries.filter((canary) => text.includes(canary))).toEqual([]);
  expect(text).toContain('\\"seat\\":2');
  expect(text).not.toContain("c-ada\\\\"); // the subject is no key of a row
});

test("C6: null is sealed, absent fields stay absent, whole objects are one value", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  await bus.transaction((tx) => tx.publish(Registered, { ...ada, address: undefined }));
  const { rows } = await database.pool.query<{ data: string }>("select data from sagabox.message");
  const data = JSON.parse(rows[0]?.data ?? "") as Record<string, Json>;
  expect(data["phone"]).toEqual({ $sealed: expect.stringMatching(/^1\./) });
  expect(Object.keys(data)).not.toContain("address");
  expect(data["customerId"]).toBe("c-ada");
});

test("C6: a consumer without keys gets sealed values, typed, and everything else as it is", async () => {
  const database = await subjectsDatabase();
  const publisher = subjectsBus(database);
  const reader = subjectsBus(database, { service: "reader", privacy: {} });
  const got = createDeferred<(typeof Registered)["~types"]["data"]>();
  reader.on(Registered, { consumer: "reader" }, ({ data }) => got.resolve(data));
  await reader.run();
  await publisher.transaction((tx) => tx.publish(Registered, ada));
  const data = await got.promise;
  expect([isEncrypted(data.email), isErased(data.email), isEncrypted(data.address)]).toEqual([
    true,
    false,
    true,
  ]);
  expect(data.guests.map(({ seat }) => seat)).toEqual([1, 2]);
  expect(data.plan).toBe("gold");
});

test("C6: without keys nothing personal is published, and the error says what to do", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, { privacy: {} });
  const publishing = bus.transaction((tx) => tx.publish(Registered, ada));
  await expect(publishing).rejects.toMatchObject({
    code: "PRIVACY_KEYS_MISSING",
    message: expect.stringContaining("SAGABOX_KEY_RING_FILE"),
  });
  expect((await database.pool.query("select from sagabox.message")).rowCount).toBe(0);
});

test("C6: the key of a new person lives and dies with the transaction that made it", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  const keys = async (): Promise<number> =>
    (await database.pool.query("select from sagabox.subject_key")).rowCount ?? 0;
  const failed = bus.transaction(async (tx) => {
    await tx.publish(Registered, ada);
    await tx.publish(Registered, ada);
    throw new Error("no");
  });
  await expect(failed).rejects.toThrow("no");
  expect(await keys()).toBe(0);
  await bus.transaction(async (tx) => {
    await tx.publish(Registered, ada);
    await tx.publish(Registered, ada);
  });
  await bus.transaction((tx) => tx.publish(Registered, ada));
  expect(await keys()).toBe(1);
});

test("C6: transactions that meet new subjects at once, in opposite order, do not wait for each other", async () => {
  const database = await subjectsDatabase(30);
  const bus = subjectsBus(database);
  const all = createDeferred<void>();
  const seen: string[] = [];
  const done = createDeferred<void>();
  bus.on(Registered, { consumer: "mail" }, ({ data: { email } }) => {
    if (seen.push(isEncrypted(email) || isErased(email) ? "hidden" : email) === 40) done.resolve();
  });
  await bus.run();
  let open = 0;
  await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      bus.transaction(async (tx) => {
        const order = n % 2 === 0 ? ["one", "two"] : ["two", "one"];
        for (const customerId of order) await tx.publish(Registered, { ...ada, customerId });
        // No transaction commits before all have made their keys: one that waited for another's lock would wait for ever.
        if (++open === 20) all.resolve();
        await all.promise;
      }),
    ),
  );
  const { rows } = await database.pool.query<{ n: number }>(
    "select count(*)::int as n from sagabox.subject_key group by subject",
  );
  expect(rows.map(({ n }) => n)).toEqual([20, 20]);
  await done.promise;
  expect(new Set(seen)).toEqual(new Set([ada.email]));
});

test("SEC-42: a value moved to another field or message is a dead letter at once, with one kind of error", async () => {
  const database = await subjectsDatabase();
  const observer = new RecordingObserver();
  const bus = subjectsBus(database, { observers: [observer] });
  bus.on(Registered, { consumer: "mail" }, () => undefined);
  await bus.transaction(async (tx) => {
    await tx.publish(Registered, ada, { id: "moved", delay: "1s" });
    await tx.publish(Registered, ada, { id: "swapped", delay: "1s" });
    await tx.publish(Registered, ada, { id: "cut", delay: "1s" });
    await tx.publish(Registered, ada, { id: "clear", delay: "1s" });
    await tx.publish(Registered, ada, { id: "header", delay: "1s" });
  });
  const data = async (id: string): Promise<typeof ada> => {
    const sql = "select data from sagabox.scheduled where id = $1";
    return JSON.parse(
      (await database.pool.query<{ data: string }>(sql, [id])).rows[0]?.data ?? "",
    ) as typeof ada;
  };
  const change = async (id: string, to: object): Promise<unknown> =>
    database.pool.query("update sagabox.scheduled set data = $2 where id = $1", [id, JSON.stringify(to)]);
  await change("moved", { ...(await data("moved")), email: (await data("swapped")).email });
  const swapped = await data("swapped");
  await change("swapped", { ...swapped, email: swapped.phone, phone: swapped.email });
  const token = ((await data("cut")).email as unknown as { $sealed: string }).$sealed;
  await change("cut", { ...(await data("cut")), email: { $sealed: token.slice(0, -6) } });
  await change("clear", { ...(await data("clear")), email: "mallory@example.com" });
  await database.pool.query(
    `update sagabox.scheduled set headers = '{"sagabox-sealed":"[]"}' where id = 'header'`,
  );
  await bus.run();
  await observer.until("dead_letter.buried", 5);
  const letters = await bus.deadLetters.list();
  expect(
    letters.map(({ messageId, reason, errorType }) => `${messageId} ${reason} ${errorType}`).sort(),
  ).toEqual(["clear", "cut", "header", "moved", "swapped"].map((id) => `${id} rejected PRIVACY_SEAL_BROKEN`));
  expect(new Set(letters.map(({ errorMessage }) => errorMessage)).size).toBe(1);
});

test("C-15: what a handler throws about a person is written without the person", async () => {
  const database = await subjectsDatabase();
  const observer = new RecordingObserver();
  const bus = subjectsBus(database, { observers: [observer] });
  bus.on(Registered, { consumer: "mail", retry: { maxAttempts: 1 } }, ({ data }) => {
    throw new Error(`cannot write to ${data.email as string}`);
  });
  await bus.run();
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await observer.until("dead_letter.buried");
  const everything = JSON.stringify(observer.emitted) + (await wholeDatabase(database));
  expect(everything).toContain("cannot write to [personal]");
  expect(canaries.filter((canary) => everything.includes(canary))).toEqual([]);
});

test("C6: batches of handlers get opened data", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  const seen: unknown[] = [];
  const done = createDeferred<void>();
  bus.onBatch(Registered, { consumer: "bulk" }, (messages) => {
    seen.push(...messages.map(({ data }) => data.email));
    if (seen.length >= 10) done.resolve();
  });
  await bus.run();
  await bus.transaction(async (tx) => {
    for (let n = 0; n < 10; n++) await tx.publish(Registered, { ...ada, customerId: `c-${n}` });
  });
  await done.promise;
  expect(seen).toEqual(Array.from({ length: 10 }, () => ada.email));
});

test("C-11: what an old ring sealed, a ring with more keys opens, and the other way round not without the key", async () => {
  const database = await subjectsDatabase();
  const old = subjectsBus(database);
  const observer = new RecordingObserver();
  const lacking = subjectsBus(database, { privacy: { keys: testKeyRing("2026-b") }, observers: [observer] });
  const got = createDeferred<unknown>();
  lacking.on(Registered, { consumer: "mail" }, ({ data }) => got.resolve(data.email));
  await lacking.run();
  await old.transaction((tx) => tx.publish(Registered, ada));
  const [retried] = await observer.until("consumer.retried");
  expect(retried).toMatchObject({ countsAsAttempt: false });
  await lacking.stop();
  const both = subjectsBus(database, { privacy: { keys: testKeyRing("2026-b", "2026-a") } });
  both.on(Registered, { consumer: "mail" }, ({ data }) => got.resolve(data.email));
  await both.run();
  expect(await got.promise).toBe(ada.email);
});

test("C6: a process that handles personal data without keys says so at its start", async () => {
  const database = await subjectsDatabase();
  const observer = new RecordingObserver();
  const bus = subjectsBus(database, { observers: [observer], privacy: {} });
  bus.on(Registered, { consumer: "mail" }, () => undefined);
  await bus.run();
  expect(observer.of("consumer.sealed")).toEqual([{ consumer: "mail", type: Registered.name }]);
});
