import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { keyRing, type KeyWrapper } from "sagabox/privacy";
import { isErased } from "sagabox";
import { expect, test, vi } from "vitest";
import { serviceKeys, type KeyService } from "../../examples/guides/privacy.ts";
import {
  ada,
  subjectsBus,
  subjectsDatabase,
  createDeferred,
  Registered,
  testKeyRing,
} from "../support/data-subjects.ts";
import { RecordingObserver } from "../support/recording-observer.ts";

vi.setConfig({ testTimeout: 60_000 });

/** A service that is there or not, as the test wants. */
function switchable() {
  const inner = testKeyRing();
  const state = { up: true, calls: 0 };
  const countRequest = <T>(answer: () => Promise<T>): Promise<T> => {
    state.calls += 1;
    return state.up ? answer() : new Promise<never>(() => undefined); // a black hole
  };
  const service: KeyService = {
    encrypt: (_, bytes, context) =>
      countRequest(async () => (await inner.wrap(bytes, context["sagabox"] ?? "")).wrapped),
    decrypt: (_, wrapped, context) =>
      countRequest(() => inner.unwrap({ keyId: "2026-a", wrapped }, context["sagabox"] ?? "")),
  };
  return { state, service };
}

test("C-12: while the key service is away messages wait without counted attempts, and cached keys stay usable", async () => {
  const database = await subjectsDatabase(40);
  const { state, service } = switchable();
  const keys = serviceKeys(service, "cmk-1");
  const indexKey = testKeyRing().indexKey;
  const observer = new RecordingObserver();
  const options = { keys, indexKey, keyTimeout: 200 };
  const bus = subjectsBus(database, { privacy: options, observers: [observer] });
  const seen: unknown[] = [];
  bus.on(Registered, { consumer: "mail" }, ({ data }) => void seen.push(data.email));
  await bus.run();
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await expect.poll(() => seen, { timeout: 10_000 }).toEqual([ada.email]);
  state.up = false;
  await bus.transaction((tx) => tx.publish(Registered, { ...ada, email: "cached" }));
  await expect.poll(() => seen, { timeout: 10_000 }).toEqual([ada.email, "cached"]);
  const refused = bus.transaction((tx) => tx.publish(Registered, { ...ada, customerId: "c-new" }));
  await expect(refused).rejects.toMatchObject({ code: "PRIVACY_KEYS_UNAVAILABLE" });
  const cold = subjectsBus(database, { service: "cold", privacy: options, observers: [observer] });
  const late = createDeferred<unknown>();
  cold.on(Registered, { consumer: "cold" }, ({ data }) => late.resolve(data.email));
  await cold.run();
  await bus.transaction((tx) => tx.publish(Registered, { ...ada, email: "waits" }));
  const [retried] = await observer.until("consumer.retried");
  expect(retried).toMatchObject({ countsAsAttempt: false, consumer: "cold" });
  state.up = true;
  expect(await late.promise).toBe("waits");
  expect(await bus.deadLetters.list()).toEqual([]);
});

test("C-11: the current key changes again and again under load, and nothing becomes unreadable", async () => {
  const database = await subjectsDatabase(40);
  const names = ["2026-a", "2026-b", "2026-c", "2026-d"];
  const key = (n: number): Uint8Array =>
    Uint8Array.from({ length: 32 }, (_, i) => (i * 11 + n * 41 + 3) % 256);
  const rings = names.map((current) =>
    keyRing({ current, keys: Object.fromEntries(names.map((name, n) => [name, key(n)])), index: key(77) }),
  );
  let now = 0;
  const turning: KeyWrapper = {
    currentKeyId: () => names[now] ?? "",
    wrap: (dataKey, context) => (rings[now] ?? testKeyRing()).wrap(dataKey, context),
    unwrap: (wrapped, context) => (rings[0] ?? testKeyRing()).unwrap(wrapped, context),
  };
  const bus = subjectsBus(database, { privacy: { keys: turning, indexKey: key(77), cacheTtl: 50 } });
  const seen = { opened: 0, hidden: 0 };
  bus.on(Registered, { consumer: "mail" }, ({ data }) => {
    seen[data.email === ada.email ? "opened" : "hidden"] += 1;
  });
  await bus.run();
  let published = 0;
  const keepPublishing = async (from: number): Promise<void> => {
    for (let n = 0; n < 60; n++) {
      await bus.transaction((tx) =>
        tx.publish(Registered, { ...ada, customerId: `c-${(from * 7 + n) % 25}` }),
      );
      published += 1;
    }
  };
  const keepRotating = async (): Promise<void> => {
    for (now = 1; now < names.length - 1; now++) await bus.privacy.rewrap();
    await bus.privacy.rewrap();
  };
  await Promise.all([keepPublishing(1), keepPublishing(2), keepRotating()]);
  await expect.poll(() => seen.opened + seen.hidden, { timeout: 30_000 }).toBe(published);
  expect(seen.hidden).toBe(0);
  await bus.privacy.rewrap();
  expect((await bus.privacy.status()).keys).toEqual({ "2026-d": expect.any(Number) });
});

test("C6: a process that is killed while it erases has erased, or has not; the rest is done by another", async () => {
  const database = await subjectsDatabase(20);
  const bus = subjectsBus(database, { privacy: { keys: testKeyRing(), cacheTtl: 0 } });
  await bus.transaction((tx) => tx.publish(Registered, ada, { delay: "1h" }));
  // An update of the keys waits here, so that the other process dies inside its transaction.
  const blocker = await database.pool.connect();
  await blocker.query("begin; select from sagabox.subject_key for update");
  const script = fileURLToPath(new URL("./privacy-eraser.ts", import.meta.url));
  const child = fork(script, [database.url], {
    execArgv: ["--conditions=sagabox:source", "--import", import.meta.resolve("tsx")],
  });
  await once(child, "message");
  child.send("go");
  const waiting =
    "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and datname = $1";
  await expect
    .poll(async () => (await database.pool.query<{ n: number }>(waiting, [database.name])).rows[0]?.n, {
      timeout: 20_000,
    })
    .toBe(1);
  child.kill("SIGKILL");
  await once(child, "exit");
  await blocker.query("rollback");
  blocker.release();
  const status = async () => bus.privacy.status();
  // The server may still carry out the statement that was sent, but it is never committed.
  await expect.poll(status).toMatchObject({ destroyed: 0, erasures: 0, keys: { "2026-a": 1 } });
  expect(await bus.privacy.erase("c-ada", { reason: "again" })).toMatchObject({
    outcome: "erased",
    keysDestroyed: 1,
  });
  for await (const { data } of bus.privacy.export("c-ada", { reason: "request" })) {
    expect(isErased((data as { email: unknown }).email)).toBe(true);
  }
});
