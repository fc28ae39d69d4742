import { isErased, type DataOf } from "sagabox";
import { SubjectErased } from "sagabox/privacy";
import { expect, test } from "vitest";
import {
  ada,
  canaries,
  subjectsBus,
  subjectsDatabase,
  createDeferred,
  Registered,
  testKeyRing,
  sweepAll,
} from "../support/data-subjects.ts";
import { RecordingObserver } from "../support/recording-observer.ts";

const because = { reason: "request 17", actor: "clerk" };
type Data = DataOf<typeof Registered>;

test("C6: after an erasure the message is read as erased, and everything else as before", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  const first = createDeferred<Data>();
  bus.on(Registered, { consumer: "first" }, ({ data }) => first.resolve(data));
  await bus.run();
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await bus.transaction((tx) => tx.publish(Registered, { ...ada, customerId: "c-bob", email: "bob" }));
  expect((await first.promise).email).toBe(ada.email);
  const report = await bus.privacy.erase("c-ada", because);
  expect(report).toMatchObject({ outcome: "erased", keysDestroyed: 1, sagasParked: [] });
  const remains = report.remains.map(({ where }) => where).join("; ");
  expect(remains).toContain("memory of other processes");
  expect(remains).toContain("not written yet");
  expect(remains).toContain("written before their contract");
  const seen: Data[] = [];
  for await (const { data } of bus.privacy.export("c-ada", because)) seen.push(data as unknown as Data);
  expect(seen).toHaveLength(1);
  expect([isErased(seen[0]?.email), isErased(seen[0]?.address), seen[0]?.plan]).toEqual([true, true, "gold"]);
  expect(seen[0]?.guests.map(({ seat, name }) => [seat, isErased(name)])).toEqual([
    [1, true],
    [2, true],
  ]);
  const bob: unknown[] = [];
  for await (const { data } of bus.privacy.export("c-bob", because))
    bob.push((data as { email: string }).email);
  expect(bob).toEqual(["bob"]);
});

test("C6: the erasure is logged without the subject, reported to other services, and done once", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  const notices = createDeferred<DataOf<typeof SubjectErased>>();
  bus.on(SubjectErased, { consumer: "others" }, ({ data }) => notices.resolve(data));
  await bus.run();
  await bus.transaction((tx) => tx.publish(Registered, ada));
  const { erasure } = await bus.privacy.erase("c-ada", because);
  const again = await bus.privacy.erase("c-ada", because);
  expect([again.outcome, again.keysDestroyed, again.erasure?.id]).toEqual(["already", 0, erasure?.id]);
  expect(await notices.promise).toMatchObject({ subject: erasure?.subject, keyIds: erasure?.keyIds });
  const { rows } = await database.pool.query(
    "select row_to_json(l)::text as line from sagabox.gdpr_erasure_log l",
  );
  expect(rows).toHaveLength(1);
  expect(JSON.stringify(rows)).not.toContain("c-ada");
  expect(rows[0]).toMatchObject({ line: expect.stringContaining("request 17") });
  // An erased subject that returns is a new subject.
  await bus.transaction((tx) => tx.publish(Registered, ada));
  expect((await bus.privacy.erase("c-ada", because)).keysDestroyed).toBe(1);
});

test("C-10: a dead letter replayed after the erasure is handled as erased, without a loop", async () => {
  const database = await subjectsDatabase();
  const observer = new RecordingObserver();
  const bus = subjectsBus(database, { observers: [observer] });
  const after = createDeferred<Data>();
  bus.on(Registered, { consumer: "mail", retry: { maxAttempts: 1 } }, ({ data }) => {
    if (!isErased(data.email)) throw new Error(`customer ${data.customerId} moved`);
    after.resolve(data);
  });
  await bus.run();
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await observer.until("dead_letter.buried");
  const report = await bus.privacy.erase("c-ada", because);
  expect(report.scrubbed.deadLetters).toBe(1);
  const [letter] = await bus.deadLetters.list();
  const detail = await bus.deadLetters.show(letter?.id ?? "");
  expect([letter?.errorMessage, detail.dlq_metadata.stack_trace]).toEqual(["[erased]", null]);
  await bus.deadLetters.replay(letter?.id ?? "");
  expect(isErased((await after.promise).address)).toBe(true);
  await observer.until("consumer.processed");
  expect(await bus.deadLetters.list({ open: true })).toEqual([]);
});

test("C-08: three processes with the key in memory cannot read after the notice, or after the cache expires", async () => {
  const database = await subjectsDatabase(60);
  const readers = await Promise.all(
    [0, 1].map(async (n) => {
      const bus = subjectsBus(database, {
        service: `s${n}`,
        privacy: { keys: testKeyRing(), cacheTtl: "60s" },
      });
      const seen: boolean[] = [];
      bus.on(Registered, { consumer: `c${n}` }, ({ data }) => void seen.push(isErased(data.email)));
      await bus.run();
      return { bus, seen };
    }),
  );
  // The third does not run and so gets no notice: only its cache expiry counts.
  const deaf = subjectsBus(database, { service: "deaf", privacy: { keys: testKeyRing(), cacheTtl: "1s" } });
  const deafReads = async (): Promise<unknown> => {
    const lines = [];
    for await (const { data } of deaf.privacy.export("c-ada", because)) lines.push(data as Data);
    return lines.map(({ email }) => isErased(email));
  };
  const [one] = readers;
  await one?.bus.transaction((tx) => tx.publish(Registered, ada, { id: "before" }));
  await expect.poll(() => readers.map(({ seen }) => seen), { timeout: 10_000 }).toEqual([[false], [false]]);
  expect(await deafReads()).toEqual([false]);
  await one?.bus.privacy.erase("c-ada", because);
  await new Promise((resolve) => setTimeout(resolve, 1_100)); // the time to live itself is what is tested
  expect(await deafReads()).toEqual([true]);
  await database.pool.query("delete from sagabox.consumer_inbox");
  const hour = 3_600_000;
  await one?.bus.republish({
    from: new Date(Date.now() - hour),
    to: new Date(Date.now() + hour),
    actor: "test",
    reason: "again",
  });
  await expect
    .poll(() => readers.map(({ seen }) => seen), { timeout: 10_000 })
    .toEqual([
      [false, true],
      [false, true],
    ]);
});

test("C-16: a hold refuses the erasure, whichever comes first is kept", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  await bus.transaction((tx) => tx.publish(Registered, ada));
  expect(await bus.privacy.hold("c-ada", { reason: "case 9", actor: "legal" })).toBe(true);
  expect(await bus.privacy.hold("c-ada", { reason: "case 9", actor: "legal" })).toBe(false);
  await expect(bus.privacy.erase("c-ada", because)).rejects.toMatchObject({ code: "PRIVACY_SUBJECT_HELD" });
  expect((await bus.privacy.status()).destroyed).toBe(0);
  expect(await bus.privacy.release("c-ada", { reason: "closed", actor: "legal" })).toBe(true);
  expect((await bus.privacy.erase("c-ada", because)).keysDestroyed).toBe(1);
  expect(await bus.privacy.hold("c-ada", { reason: "too late" })).toBe(true);
  expect((await bus.privacy.status()).holds).toBe(1);
});

test("C6: a key that an open transaction made is destroyed when it has committed", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  const made = createDeferred<void>();
  const go = createDeferred<void>();
  const open = bus.transaction(async (tx) => {
    await tx.publish(Registered, ada, { delay: "1h" });
    made.resolve();
    await go.promise;
  });
  await made.promise;
  const report = await bus.privacy.erase("c-ada", because);
  expect([report.keysDestroyed, report.swept]).toEqual([0, false]);
  go.resolve();
  await open;
  expect((await bus.privacy.status()).unswept).toBe(1);
  await sweepAll(bus);
  expect(await bus.privacy.status()).toMatchObject({ destroyed: 1, unswept: 0, keys: {} });
  const lines = [];
  for await (const { kind, data } of bus.privacy.export("c-ada", because))
    lines.push([kind, isErased((data as Data).email)]);
  expect(lines).toEqual([["scheduled", true]]);
});

test("SEC-41: a restored backup of the keys makes no erased subject readable", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, { privacy: { keys: testKeyRing(), cacheTtl: 0 } });
  await bus.transaction((tx) => tx.publish(Registered, ada, { delay: "1h" }));
  await bus.transaction((tx) => tx.publish(Registered, { ...ada, customerId: "c-bob" }, { delay: "1h" }));
  await database.pool.query("create table backup as select * from sagabox.subject_key");
  await bus.privacy.erase("c-ada", because);
  const kept = [];
  for await (const erasure of bus.privacy.erasures()) kept.push(erasure);
  await database.pool.query(`
    truncate sagabox.subject_key; truncate sagabox.gdpr_erasure_log;
    insert into sagabox.subject_key select * from backup`);
  const email = async (): Promise<unknown> => {
    for await (const { data } of bus.privacy.export("c-ada", because)) return (data as Data).email;
    return undefined;
  };
  expect(await email()).toBe(ada.email);
  const forged = kept.map((erasure) => ({ ...erasure, subject: erasure.subject.replace(/^./, "x") }));
  expect(await bus.privacy.reapply(forged)).toMatchObject({ refused: 1, keysDestroyed: 0 });
  expect(await bus.privacy.reapply(kept)).toEqual({ erasures: 1, keysDestroyed: 1, refused: 0 });
  expect(isErased(await email())).toBe(true);
  expect(await bus.privacy.reapply()).toEqual({ erasures: 1, keysDestroyed: 0, refused: 0 });
  expect(await bus.privacy.status()).toMatchObject({ destroyed: 1, keys: { "2026-a": 1 } });
});

test("C-11: a ring with a new key rewraps the old data keys, and nothing that was sealed is written again", async () => {
  const database = await subjectsDatabase();
  const old = subjectsBus(database);
  for (let n = 0; n < 5; n++) {
    await old.transaction((tx) => tx.publish(Registered, { ...ada, customerId: `c-${n}` }, { delay: "1h" }));
  }
  await old.privacy.erase("c-4", because);
  const messages = async (): Promise<unknown> =>
    (await database.pool.query("select id, data from sagabox.scheduled order by id")).rows;
  const before = await messages();
  const both = subjectsBus(database, { privacy: { keys: testKeyRing("2026-b", "2026-a") } });
  const steps: number[] = [];
  const result = await both.privacy.rewrap({ onProgress: ({ rewrapped }) => void steps.push(rewrapped) });
  expect([result, steps]).toEqual([{ rewrapped: 4, left: 0 }, [4]]);
  expect(await both.privacy.status()).toMatchObject({
    currentKey: "2026-b",
    keys: { "2026-b": 4 },
    destroyed: 1,
  });
  expect(await messages()).toEqual(before);
  const alone = subjectsBus(database, { privacy: { keys: testKeyRing("2026-b") } });
  for (const n of [0, 3])
    for await (const { data } of alone.privacy.export(`c-${n}`, because))
      expect((data as Data).email).toBe(ada.email);
  const stopped = await both.privacy.rewrap({ signal: AbortSignal.abort() });
  expect(stopped).toEqual({ rewrapped: 0, left: 0 });
});

test("C6: a dry run destroys nothing and says what it would", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  await bus.transaction((tx) => tx.publish(Registered, ada));
  const report = await bus.privacy.erase("c-ada", { ...because, dryRun: true });
  expect(report).toMatchObject({ outcome: "dry run", keysDestroyed: 1, erasure: null });
  expect(await bus.privacy.status()).toMatchObject({ destroyed: 0, erasures: 0 });
  expect(JSON.stringify(report)).not.toContain("c-ada");
  expect(canaries.some((canary) => JSON.stringify(report).includes(canary))).toBe(false);
});

test.each(["", "  ", "x".repeat(2_000)])("C6: %j is no person", async (subject) => {
  const bus = subjectsBus(await subjectsDatabase());
  await expect(bus.privacy.erase(subject, because)).rejects.toMatchObject({
    code: "PRIVACY_SUBJECT_INVALID",
  });
});
