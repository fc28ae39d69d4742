import { randomBytes } from "node:crypto";
import { keyRing } from "sagabox/privacy";
import { expect, test, vi } from "vitest";
import {
  ada,
  subjectsBus,
  subjectsDatabase,
  Registered,
  testKeyRing,
  sweepAll,
} from "../support/data-subjects.ts";

vi.setConfig({ testTimeout: 60_000 });

const because = { reason: "request 17", actor: "clerk" };

test("C5: every action on data subjects is in the audit log, with actor, reason and outcome", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await bus.privacy.hold("c-ada", because);
  await expect(bus.privacy.erase("c-ada", because)).rejects.toMatchObject({ code: "PRIVACY_SUBJECT_HELD" });
  await bus.privacy.release("c-ada", because);
  for await (const { kind } of bus.privacy.export("c-ada", because)) expect(kind).toBe("message");
  await bus.privacy.rewrap({ actor: "clerk", reason: "yearly" });
  const { subject } = await bus.privacy.erase("c-ada", because);
  await bus.privacy.reapply(undefined, { actor: "clerk" });
  await database.pool.query("alter table sagabox.legal_hold rename to away");
  await expect(bus.privacy.erase("c-bob", because)).rejects.toThrow();
  const { rows } = await database.pool.query<Record<string, unknown>>(
    "select action, actor, reason, outcome, error_code, target_kind, target_id from sagabox.audit_log order by id",
  );
  expect(rows.map(({ action, outcome }) => `${String(action)} ${String(outcome)}`)).toEqual([
    "privacy.hold done",
    "privacy.erase refused",
    "privacy.release done",
    "privacy.export done",
    "privacy.rewrap done",
    "privacy.erase done",
    "privacy.reapply done",
    "privacy.erase failed",
  ]);
  expect(new Set(rows.map(({ actor }) => actor))).toEqual(new Set(["clerk"]));
  expect(rows[5]).toMatchObject({ reason: "request 17", target_kind: "person", target_id: subject });
  expect(JSON.stringify(rows)).not.toContain("c-ada");
});

test("C5: nothing is handed out without a reason", async () => {
  const bus = subjectsBus(await subjectsDatabase());
  const lines = bus.privacy.export("c-ada", { reason: "" });
  await expect(lines.next()).rejects.toMatchObject({ code: "OPTIONS_INVALID" });
});

test("C6: with another index key no subject is erased, held, exported or written, and the error says why", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  await bus.transaction((tx) => tx.publish(Registered, ada));
  const keys = keyRing({ current: "x", keys: { x: randomBytes(32) }, index: randomBytes(32) });
  const other = subjectsBus(database, { privacy: { keys } });
  const refused = { code: "PRIVACY_KEYS_INVALID", message: expect.stringContaining("blind indexes") };
  await expect(other.privacy.erase("c-ada", because)).rejects.toMatchObject(refused);
  await expect(other.privacy.erase("c-ada", { ...because, dryRun: true })).rejects.toMatchObject(refused);
  await expect(other.privacy.hold("c-ada", because)).rejects.toMatchObject(refused);
  await expect(other.privacy.export("c-ada", because).next()).rejects.toMatchObject(refused);
  await expect(other.transaction((tx) => tx.publish(Registered, ada))).rejects.toMatchObject(refused);
  expect(await bus.privacy.status()).toMatchObject({ destroyed: 0, erasures: 0, keys: { "2026-a": 1 } });
});

test("C6: the first transaction that is rolled back does not decide which index key counts", async () => {
  const database = await subjectsDatabase();
  const keys = keyRing({ current: "x", keys: { x: randomBytes(32) }, index: randomBytes(32) });
  const other = subjectsBus(database, { privacy: { keys } });
  const failing = other.transaction(async (tx) => {
    await tx.publish(Registered, ada);
    await tx.publish(Registered, { ...ada, customerId: "c-bob" });
    throw new Error("no");
  });
  await expect(failing).rejects.toThrow("no");
  const bus = subjectsBus(database);
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await expect(other.transaction((tx) => tx.publish(Registered, ada))).rejects.toMatchObject({
    code: "PRIVACY_KEYS_INVALID",
  });
});

test("C6: a subject never seen is unknown, not erased; one written by an open transaction is erased as well", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, { privacy: { keys: testKeyRing(), cacheTtl: 0 } });
  await bus.transaction((tx) => tx.publish(Registered, ada));
  expect(await bus.privacy.erase("c-adda", because)).toMatchObject({ outcome: "unknown", known: false });
  expect(await bus.privacy.erase("c-adda", because)).toMatchObject({ outcome: "unknown", known: false });
  await bus.transaction(async (tx) => {
    await tx.publish(Registered, { ...ada, customerId: "c-bob" });
    expect(await bus.privacy.erase("c-bob", because)).toMatchObject({ outcome: "unknown", swept: false });
  });
  await sweepAll(bus);
  expect(await bus.privacy.erase("c-bob", because)).toMatchObject({ outcome: "already", known: true });
});
